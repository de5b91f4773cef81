"""What the wheel and the Debian package hold, to the file."""

from __future__ import annotations

from system import images

PACKAGES = {
    "annotated_doc": "annotated-doc",
    "jinja2": "jinja2",
    "markdown_it": "markdown-it-py",
    "markupsafe": "markupsafe",
    "mdurl": "mdurl",
    "pygments": "pygments",
    "rich": "rich",
    "sh": "sh",
    "shellingham": "shellingham",
    "typer": "typer",
}
"""What else lies beside memops in the Debian package, and the name under which it is pinned."""


def modules() -> set[str]:
    """Every file of the package memops, with the templates and scripts that come along."""
    expected = {
        f"memops/{target}/{file.name}"
        for source, target, pattern in [
            ("installer/memops", ".", "*.py"),
            ("installer/memops", ".", "py.typed"),
            ("installer/memops/products", "products", "*.toml"),
            ("units", "units", "*"),
            ("sql", "sql", "*"),
            ("scripts/jobs", "jobs", "*.py"),
            ("scripts/jobs/kinds", "jobs/kinds", "*.py"),
            ("scripts/jobs/hands", "jobs/hands", "*.py"),
        ]
        for file in (images.ROOT / source).glob(pattern)
        if file.is_file()
    }
    return {name.replace("/./", "/") for name in expected}
