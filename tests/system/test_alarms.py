"""Who is told when a job fails: the journal, a mailbox, a monitoring service; and that telling never harms a job."""

from __future__ import annotations

import email
import json
from email import policy
from typing import TYPE_CHECKING

import pytest

from system.machine import DB, add_facts, listing, memops

if TYPE_CHECKING:
    from system.server import Server

PRUNE, SNAPSHOT, BACKUP = "memory-prune.service", "memory-snapshot.service", "memory-backup.service"
CHECK_ID = "8b1f3c5e-0000-4d2a-9b7e-c0ffee15bad5"
FACT = "the-password-is-hunter2"

ALTERNATE = True  # each test on one Debian, all on both in the long form

SENDMAIL = """#!/bin/sh
[ "$#" = 2 ] && [ "$1" = -i ] || { echo "unknown arguments: $*" >&2; exit 64; }
echo "X-Argument: $2" >/var/mail/taken
cat >>/var/mail/taken
"""
CHECKS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("/var/log/checks", "a") as log:
            print(self.command, self.path, file=log)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open("/run/checks-port", "w") as file:  # all servers of a machine share its ports
    print(server.server_port, file=file)
server.serve_forever()
"""


def errors(server: Server, unit: str) -> list[str]:
    """What the alert of ``unit`` said at priority err, once it has ended."""
    alert = f"memory-alert@{unit}.service"
    server.wait_until(lambda: server.show(alert, "ActiveState")["ActiveState"] in ("inactive", "failed"))
    server.run("journalctl", "--sync")
    found = server.run("journalctl", "--quiet", "--output=cat", "-p", "err", "-u", alert, "_COMM=python3")
    return found.stdout.splitlines()


def start(server: Server, unit: str, *, fails: bool = False) -> None:
    """Start a job and insist on how it ends."""
    server.run("systemctl", "reset-failed", unit)  # nor is it started too often
    ran = server.run("systemctl", "start", unit, check=False)
    assert (ran.code != 0) == fails, ran.stderr
    assert server.show(unit, "Result")["Result"] == ("exit-code" if fails and unit != BACKUP else "success")


def test_a_failed_job_gives_one_line_with_the_reason(memops_server: Server) -> None:
    server = memops_server
    said = memops(server, "install").stdout
    assert "--mail-to" not in said
    assert "memory-ping" not in said
    units = server.run("ls", "/etc/systemd/system").stdout.split()
    assert [unit for unit in units if "@" in unit and unit.startswith("memory")] == ["memory-alert@.service"]
    assert not server.exists("/etc/memops/default/ping-url")
    server.sql(DB, f"INSERT INTO memory (id, subject, fact, source) VALUES ('m_1', 's', '{FACT}', 'chat')")
    start(server, PRUNE)
    assert errors(server, PRUNE) == []

    server.sh(f"mv {DB} {DB}.away")
    start(server, PRUNE, fails=True)
    (line,) = server.wait_until(lambda: errors(server, PRUNE))
    assert line.startswith("memory-prune.service failed at 20")
    assert "Z: the store is not there, or its directory cannot be written" in line
    told = server.journal(f"memory-alert@{PRUNE}.service")
    assert "  | prune: the store is not there" in told
    assert "  | Failed to start memory-prune.service" in told
    assert server.show(PRUNE, "ActiveState")["ActiveState"] == "failed"

    # The backup never ran, since its first half failed: one reason, told once.
    start(server, BACKUP, fails=True)
    (line,) = server.wait_until(lambda: errors(server, SNAPSHOT))
    assert "there is no store at /run/memops/store/memory.db" in line
    (line,) = server.wait_until(lambda: errors(server, BACKUP))
    assert line.startswith("memory-backup.service did not run at")
    assert line.endswith("memory-snapshot.service failed before it")

    # A job that never came to write a word: systemd's, in words.
    server.sh(f"mv {DB}.away {DB}; mv /srv/agent /srv/away")
    start(server, PRUNE, fails=True)
    line = server.wait_until(lambda: errors(server, PRUNE)[1:])[0]
    assert "its sandbox could not be set up, or a directory is missing" in line
    server.sh("mv /srv/away /srv/agent")

    # The second half by itself.
    server.sh("mv /srv/backup/default /srv/backup/away; mkdir /srv/backup/default; chmod 0500 /srv/backup/default")
    server.sh("chown agent: /srv/backup/default")
    assert server.run("systemctl", "start", BACKUP, check=False).code != 0
    line = server.wait_until(lambda: errors(server, BACKUP)[1:])[0]
    assert line.startswith("memory-backup.service failed at"), line
    assert "Permission denied" in line
    assert FACT not in server.journal()
    assert server.run("systemctl", "list-units", "--failed", "--no-legend", "memory-alert@*").stdout == ""


def test_without_a_journal_the_run_record_is_used(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    folder = "/etc/systemd/system/memory-alert@.service.d"
    server.sh(f"mkdir {folder}; mkdir -p /run/log/journal /var/log/journal")
    server.write(f"{folder}/x.conf", "[Service]\nInaccessiblePaths=/run/log/journal /var/log/journal\n")
    server.run("systemctl", "daemon-reload")
    server.sh(f"mv {DB} {DB}.away")
    start(server, PRUNE, fails=True)
    (line,) = server.wait_until(lambda: errors(server, PRUNE))
    assert "the store is not there" in line
    told = server.journal(f"memory-alert@{PRUNE}.service")
    assert "  | the journal has no line of it; its record: start 20" in told


def test_mail_goes_through_sendmail(memops_server: Server) -> None:
    server = memops_server
    refused = memops(server, "install", "--mail-to", "-oQ/tmp", code=2)
    assert "not one mail address" in refused.stderr
    said = memops(server, "install", "--mail-to", "ops@example.org")
    assert "no sendmail" in said.stderr
    # The digest, which would fail and be mailed as well, has tests of its own.
    server.run("mkdir", "-p", "/etc/systemd/system/memory-digest.service.d")
    server.write("/etc/systemd/system/memory-digest.service.d/off.conf", "[Unit]\nConditionPathExists=/nowhere\n")
    server.run("systemctl", "daemon-reload")
    server.sh(f"mv {DB} {DB}.away")

    mail = f"memory-mail@{PRUNE}.service"
    start(server, PRUNE, fails=True)
    (line,) = server.wait_until(lambda: errors(server, PRUNE))
    assert line.endswith("(no mail: this machine has no /usr/sbin/sendmail)")
    server.wait_until(lambda: server.show(mail, "ActiveState")["ActiveState"] == "failed")
    assert "to ops@example.org could not be sent: this machine has no /usr/sbin/sendmail" in server.journal(mail)

    server.write("/usr/sbin/sendmail", SENDMAIL, 0o755)
    start(server, PRUNE, fails=True)
    server.wait_until(lambda: server.show(mail, "ActiveState")["ActiveState"] == "inactive")
    letter = email.message_from_string(server.read("/var/mail/taken"), policy=policy.default)
    assert (letter["X-Argument"], letter["To"]) == ("ops@example.org", "ops@example.org")
    assert letter["Subject"].endswith(": memory-prune.service failed")
    body = letter.get_content()
    assert "the store is not there" in body.splitlines()[0]
    assert "prune: the store is not there" in body.partition("\n\n")[2]

    # One failure of the first half is one mail.
    server.sh("rm /var/mail/taken")
    start(server, BACKUP, fails=True)
    server.wait_until(lambda: "the failure before it has its own" in server.journal(f"memory-mail@{BACKUP}.service"))
    server.wait_until(lambda: server.exists("/var/mail/taken"))
    assert "memory-snapshot.service failed" in server.read("/var/mail/taken")

    # A mail program that refuses fails the mail's unit and nothing else.
    server.write("/usr/sbin/sendmail", "#!/bin/sh\necho 'relaying denied' >&2\nexit 75\n", 0o755)
    start(server, PRUNE, fails=True)
    server.wait_until(lambda: server.show(mail, "ActiveState")["ActiveState"] == "failed")
    assert "could not be sent: relaying denied" in server.journal(mail)
    server.sh(f"mv {DB}.away {DB}")
    start(server, PRUNE)

    # How a person tries it out.
    server.write("/usr/sbin/sendmail", SENDMAIL, 0o755)
    server.run("systemctl", "start", mail)
    assert "memory-prune.service did not fail" in server.read("/var/mail/taken")

    memops(server, "install", "--mail-to", "")
    assert not server.exists("/etc/systemd/system/memory-mail@.service")
    assert "memory-mail" not in server.read(f"/etc/systemd/system/{PRUNE}")


@pytest.mark.parametrize("package", ["postfix", "exim4-daemon-light"])
def test_mail_through_a_real_mail_program(memops_server: Server, package: str) -> None:
    server = memops_server
    server.run("apt-get", "update", timeout=300)
    answers = "postfix postfix/main_mailer_type select Local only\npostfix postfix/mailname string localhost\n"
    answers += "exim4-config exim4/dc_eximconfig_configtype select local delivery only; not on a network\n"
    server.sh("apt-get install -y --no-install-recommends debconf >/dev/null; debconf-set-selections", input=answers)
    server.run(
        "apt-get", "install", "--yes", "--no-install-recommends", package,
        env={"DEBIAN_FRONTEND": "noninteractive"}, timeout=600,
    )  # fmt: skip
    server.sh("useradd --create-home ada")
    memops(server, "install", "--mail-to", "ada@localhost")
    server.sh(f"mv {DB} {DB}.away")
    start(server, PRUNE, fails=True)
    letter = server.wait_until(lambda: server.run("cat", "/var/mail/ada", check=False).stdout, timeout=60)
    assert "memory-prune.service failed at" in letter
    assert server.show(f"memory-mail@{PRUNE}.service", "Result")["Result"] == "success"


def test_pings_tell_start_success_and_failure(memops_server: Server) -> None:
    server = memops_server
    server.write("/root/checks.py", CHECKS)
    server.run("systemd-run", "--unit=checks", "python3", "/root/checks.py")
    server.wait_until(lambda: server.exists("/run/checks-port") and server.read("/run/checks-port"))
    port = server.read("/run/checks-port").strip()

    def seen() -> list[str]:
        return server.sh("cat /var/log/checks || true").stdout.split()[1::2]

    def pinged(*wanted: str) -> None:
        server.wait_until(lambda: len(seen()) >= len(wanted))
        assert seen() == list(wanted)
        server.run("rm", "/var/log/checks")

    plain = f"http://127.0.0.1:{port}/{CHECK_ID}"
    each = f"{plain}/memory-{{job}}"
    assert "address of a check" in memops(server, "install", "--ping-url", "ftp://x/y", code=2).stderr
    shown = memops(server, "install", "--ping-url", "-", "--dry-run", input=plain + "\n").stdout
    assert "write /etc/memops/default/ping-url" in shown
    assert CHECK_ID not in shown
    said = memops(server, "install", "--ping-url", "-", input=plain + "\n")
    assert CHECK_ID not in said.stdout + said.stderr
    pinged(f"/{CHECK_ID}/start", f"/{CHECK_ID}")  # the first backup
    assert server.sh("stat -c '%a %U' /etc/memops/default/ping-url").stdout == "600 root\n"
    start(server, PRUNE)
    assert "memory-ping" not in server.read(f"/etc/systemd/system/{PRUNE}")
    start(server, BACKUP)
    pinged(f"/{CHECK_ID}/start", f"/{CHECK_ID}")
    assert "Nothing to do" in memops(server, "install").stdout

    memops(server, "install", "--ping-url", "-", input=each + "\n")
    assert 'ping = "backup prune"' in server.read("/etc/memops/memops.toml")
    server.wait_until(lambda: len(seen()) == 4)  # the installation's two runs
    assert sorted(seen()) == [f"/{CHECK_ID}/memory-prune"] * 2 + [f"/{CHECK_ID}/memory-prune/start"] * 2
    server.run("rm", "/var/log/checks")
    start(server, PRUNE)
    pinged(f"/{CHECK_ID}/memory-prune/start", f"/{CHECK_ID}/memory-prune")
    server.sh(f"mv {DB} {DB}.away")
    start(server, PRUNE, fails=True)
    pinged(f"/{CHECK_ID}/memory-prune/start", f"/{CHECK_ID}/memory-prune/fail")
    start(server, BACKUP, fails=True)  # its first half fails
    pinged(f"/{CHECK_ID}/memory-backup/start", f"/{CHECK_ID}/memory-backup/fail")
    server.sh(f"mv {DB}.away {DB}")

    # The secret is in root's file and nowhere else.
    server.run("systemctl", "stop", "checks")
    begun = server.popen("systemctl", "start", "memory-ping@prune:fail.service")  # its tries take a while
    server.wait_until(lambda: "ping.py" in server.run("ps", "axww").stdout)
    texts = [
        server.run("ps", "axeww").stdout,
        server.run("sh", "-c", "journalctl --no-pager -o export | cat").stdout,
        server.run("systemctl", "show", "--all", "memory-ping@prune:fail.service", PRUNE, BACKUP).stdout,
        server.run("sh", "-c", "cat /etc/systemd/system/memory-* /etc/memops/memops.toml").stdout,
        server.run("sh", "-c", "cat /run/systemd/transient/* 2>/dev/null || true").stdout,
    ]
    assert [CHECK_ID in text for text in texts] == [False] * len(texts)
    assert server.run("cat", "/etc/memops/default/ping-url", user="agent", check=False).code != 0
    assert begun.wait(timeout=60) != 0
    begun.communicate()

    # Nobody there: the job runs all the same.
    server.run("systemctl", "reset-failed")
    start(server, BACKUP)
    start(server, PRUNE)
    ping = "memory-ping@prune:success.service"
    server.wait_until(lambda: server.show(ping, "ActiveState")["ActiveState"] == "failed", timeout=60)
    assert "ping: success of the prune was not taken: " in server.journal(ping)
    assert server.show(PRUNE, "ActiveState")["ActiveState"] == "inactive"

    memops(server, "install", "--ping-url", "")
    assert not server.exists("/etc/memops/default/ping-url")
    assert not server.exists("/etc/systemd/system/memory-ping@.service")
    start(server, PRUNE)


def test_a_failing_alarm_never_fails_a_job_and_uninstall_leaves_nothing(memops_server: Server) -> None:
    server = memops_server
    server.run("apt-get", "update", timeout=300)
    server.run("apt-get", "install", "--yes", "sqlite3", timeout=300)
    before = listing(server)
    options = ("--mail-to", "ops@example.org", "--ping-url", f"http://127.0.0.1:9/{CHECK_ID}/{{job}}")
    memops(server, "install", *options)
    server.sh("mkdir /etc/systemd/system/memory-alert@.service.d")
    server.write("/etc/systemd/system/memory-alert@.service.d/x.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
    server.run("systemctl", "daemon-reload")
    start(server, PRUNE)
    add_facts(server, [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00")])
    start(server, PRUNE)
    server.sh(f"mv {DB} {DB}.away")
    start(server, PRUNE, fails=True)
    server.sh(f"mv {DB}.away {DB}")
    server.wait_until(lambda: "failed" in server.show(f"memory-alert@{PRUNE}.service", "ActiveState").values())
    assert server.show(PRUNE, "ExecMainStatus")["ExecMainStatus"] == "1"
    start(server, PRUNE)
    server.wait_until(lambda: "failed" in server.show(f"memory-mail@{PRUNE}.service", "ActiveState").values())
    failed = json.loads(server.run("systemctl", "list-units", "--failed", "--output=json", "memory-*").stdout)
    assert f"memory-alert@{PRUNE}.service" in {unit["unit"] for unit in failed}
    assert {unit["unit"].partition("@")[0] for unit in failed} <= {"memory-alert", "memory-mail", "memory-ping"}

    server.sh("rm -r /etc/systemd/system/memory-alert@.service.d; rm /etc/memops/manifest.json")  # the harder way
    memops(server, "uninstall")
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*", "*memory*slice").stdout == ""
    users = {"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"}
    left = {path for path, line in listing(server).items() if before.get(path) != line}
    # Empty directories; only the manifest knew that memops made them.
    made = {"/etc/sysusers.d", "/etc/bash_completion.d", "/usr/local/share/man/man8"}
    assert {path for path in left if not path.startswith("/srv/")} - users - made == set()


def test_the_alarms_units_are_as_closed_as_they_can_be(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install", "--mail-to", "root", "--ping-url", f"http://127.0.0.1:9/{CHECK_ID}")
    for unit, most in (
        ("memory-alert@memory-prune.service.service", 0.9),
        ("memory-ping@backup:start.service", 1.1),
        ("memory-mail@memory-prune.service.service", 3.0),
    ):
        shown = server.run("systemd-analyze", "security", "--no-pager", unit).stdout
        score = float(shown.rpartition(": ")[2].split()[0])
        print(unit, score)
        assert score <= most, shown
    for job in (PRUNE, SNAPSHOT, BACKUP):
        assert server.show(job, "PrivateNetwork")["PrivateNetwork"] == "yes"
        assert f"memory-alert@{job}.service" in server.show(job, "OnFailure")["OnFailure"].split()
    files = server.run("sh", "-c", "ls /etc/systemd/system/memory-*").stdout.split()
    verified = server.run("systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *files)
    assert (verified.stdout, verified.stderr) == ("", "")
