/* Lets a fault strike a program at one of its calls to the file system; see library.py, which builds and loads it.

   Counted is every call that concerns a file below STRIKE_ROOT. Before number STRIKE_AT of the sorts STRIKE_SORTS
   (letters: r reads, w writes, s syncs, n makes names, u removes them) happens what STRIKE_HOW says:

     count    nothing
     kill     SIGKILL; of a write, half is done
     term     SIGTERM to itself, and the call goes on
     stop     SIGSTOP, until whoever waits for that lets it go on
     error    the call fails with STRIKE_ERRNO (half of a write is done), the later ones of these sorts too if
              STRIKE_LASTING is set

   STRIKE_LOG takes a letter for each call, and ! where the fault struck; with STRIKE_HOW=record all that a power cut may take back, see powercut.py.
   STRIKE_CLOCK shifts the clock by so many seconds. STRIKE_HASTE divides the pauses in which SQLite waits for a lock.

   Prototypes are written out so that a compiler is enough, without the C library's headers. */

typedef unsigned long size_t;
typedef long ssize_t;
typedef long off_t;
typedef unsigned int mode_t;
struct timespec { long tv_sec, tv_nsec; };
struct timeval { long tv_sec, tv_usec; };

extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern long atol(const char *);
extern size_t strlen(const char *);
extern int strncmp(const char *, const char *, size_t);
extern char *strchr(const char *, int);
extern void *memcpy(void *, const void *, size_t);
extern int snprintf(char *, size_t, const char *, ...);
extern ssize_t readlink(const char *, char *, size_t);
extern int getpid(void);
extern int kill(int, int);
extern int *__errno_location(void);
extern long syscall(long, ...);
extern void *malloc(size_t);
extern void free(void *);
extern int pthread_mutex_lock(void *);
extern int pthread_mutex_unlock(void *);

#define NEXT ((void *)-1L)
#define AT_FDCWD (-100)
#define O_WRONLY 1
#define O_RDWR 2
#define O_CREAT 0100
#define O_TRUNC 01000
#define O_APPEND 02000
#define O_CLOEXEC 02000000
#define O_TMPFILE 020200000
#define AT_REMOVEDIR 0x200
#define AT_EMPTY_PATH 0x1000
#define AT_SYMLINK_NOFOLLOW 0x100
#define SIGKILL 9
#define SIGTERM 15
#define SIGSTOP 19
#define EEXIST 17
#define PATH 4096
#define REAL(name) ((__typeof__(&name))real(#name))

/* struct statx, as far as it is used: the same on every machine. */
struct statx {
    unsigned mask, blksize; unsigned long attributes; unsigned nlink, uid, gid; unsigned short mode, spare;
    unsigned long ino, size, blocks, attributes_mask; char rest[256];
};
extern int statx(int, const char *, int, unsigned, struct statx *);

static const char *root, *how, *sorts;
static long at, number, clock_shift, haste = 1, code, lasting, struck;
static int log_fd = -1, ready;
static char lock[128]; /* a pthread_mutex_t of zeros is an unlocked one */

static void *real(const char *name) { return dlsym(NEXT, name); }

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static void begin(void) {
    if (ready) return;
    ready = 1;
    root = getenv("STRIKE_ROOT");
    how = getenv("STRIKE_HOW");
    if (!how) how = "count";
    sorts = getenv("STRIKE_SORTS");
    if (!sorts) sorts = "rwsnu";
    at = setting("STRIKE_AT", 0);
    code = setting("STRIKE_ERRNO", 5);
    lasting = setting("STRIKE_LASTING", 0);
    clock_shift = setting("STRIKE_CLOCK", 0);
    haste = setting("STRIKE_HASTE", 1);
    const char *path = getenv("STRIKE_LOG");
    if (path) {
        typedef int (*opener)(const char *, int, ...);
        log_fd = ((opener)real("open64"))(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    }
}

static void note(const void *text, size_t length) {
    typedef ssize_t (*writer)(int, const void *, size_t);
    if (log_fd >= 0) ((writer)real("write"))(log_fd, text, length);
}

static int recording(void) { return how && how[0] == 'r' && log_fd >= 0; }

static int below(const char *path) {
    size_t length;
    if (!root) return 0;
    length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int path_of(int fd, char *into) {
    char name[64];
    ssize_t length;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    length = readlink(name, into, PATH - 1);
    if (length < 0) return 0;
    into[length] = 0;
    return 1;
}

static int concerns_fd(int fd) {
    char path[PATH];
    begin();
    return root && fd >= 0 && fd != log_fd && path_of(fd, path) && below(path);
}

static int concerns(int directory, const char *path, char *whole) {
    begin();
    if (!root || !path) return 0;
    if (path[0] == '/') {
        snprintf(whole, PATH, "%s", path);
    } else {
        char above[PATH];
        ssize_t length;
        if (directory == AT_FDCWD) {
            length = readlink("/proc/self/cwd", above, PATH - 1);
            if (length < 0) return 0;
            above[length] = 0;
        } else if (!path_of(directory, above)) {
            return 0;
        }
        snprintf(whole, PATH, "%s/%s", above, path);
    }
    return below(whole);
}

/* Whether this call is to fail; 2: it is the one at which the program ends, and a write does half of it first. */
static int strike(char sort) {
    long now;
    if (how[0] == 'r' && how[1] == 'e') return 0;
    if (!strchr(sorts, sort)) return 0;
    pthread_mutex_lock(lock);
    now = ++number;
    pthread_mutex_unlock(lock);
    note(&sort, 1);
    if (!at || now < at || (now > at && !(how[0] == 'e' && lasting))) return 0;
    if (!struck) note("!", 1);
    struck = 1;
    if (how[0] == 'k') return 2;
    if (how[0] == 't') kill(getpid(), SIGTERM);
    if (how[0] == 's') kill(getpid(), SIGSTOP);
    return how[0] == 'e';
}

static int failing(char sort) {
    int verdict = strike(sort);
    if (verdict == 2) kill(getpid(), SIGKILL);
    if (verdict) *__errno_location() = (int)code;
    return verdict;
}

static unsigned long inode(int directory, const char *path, struct statx *found) {
    int before = *__errno_location();
    int flags = path[0] ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    unsigned long ino = statx(directory, path, flags, 0x7ff, found) ? 0 : found->ino;
    *__errno_location() = before;
    return ino;
}

/* Opening */

typedef int (*open_call)(const char *, int, ...);
typedef int (*openat_call)(int, const char *, int, ...);

static int opening(int directory, const char *path, int flags, mode_t mode) {
    char whole[PATH], line[PATH + 128];
    struct statx found;
    openat_call call = (openat_call)real("openat64");
    int fd, making = 0, counted = concerns(directory, path, whole);
    if (counted) {
        if (flags & O_CREAT && !inode(directory, path, &found)) making = 1;
        if (failing(making ? 'n' : 'r')) return -1;
    }
    fd = call(directory, path, flags, mode);
    if (fd >= 0 && counted && recording()) {
        inode(fd, "", &found);
        if (making) {
            int length = snprintf(line, sizeof line, "O %lu %o %u %u %s\n", found.ino, found.mode, found.uid, found.gid, whole);
            note(line, length);
        } else if (flags & O_TRUNC) {
            note(line, snprintf(line, sizeof line, "T %lu 0\n", found.ino));
        }
    }
    return fd;
}

#define MODE(last) \
    mode_t mode = 0; \
    __builtin_va_list rest; \
    __builtin_va_start(rest, last); \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { mode = __builtin_va_arg(rest, mode_t); } \
    __builtin_va_end(rest)

int open(const char *path, int flags, ...) { MODE(flags); return opening(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags); return opening(AT_FDCWD, path, flags, mode); }
int openat(int directory, const char *path, int flags, ...) { MODE(flags); return opening(directory, path, flags, mode); }
int openat64(int directory, const char *path, int flags, ...) { MODE(flags); return opening(directory, path, flags, mode); }

/* Reading */

typedef ssize_t (*read_call)(int, void *, size_t);
typedef ssize_t (*pread_call)(int, void *, size_t, off_t);

ssize_t read(int fd, void *into, size_t length) {
    if (concerns_fd(fd) && failing('r')) return -1;
    return ((read_call)real("read"))(fd, into, length);
}

static ssize_t reading(int fd, void *into, size_t length, off_t offset) {
    if (concerns_fd(fd) && failing('r')) return -1;
    return ((pread_call)real("pread64"))(fd, into, length, offset);
}
ssize_t pread(int fd, void *into, size_t length, off_t offset) { return reading(fd, into, length, offset); }
ssize_t pread64(int fd, void *into, size_t length, off_t offset) { return reading(fd, into, length, offset); }

/* Writing */

typedef ssize_t (*write_call)(int, const void *, size_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off_t);
typedef off_t (*lseek_call)(int, off_t, int);

static void note_write(int fd, const void *text, ssize_t length, off_t offset) {
    struct statx found;
    char *line;
    int head;
    if (length <= 0 || !recording()) return;
    line = malloc(length + 128);
    head = snprintf(line, 128, "W %lu %ld %ld\n", inode(fd, "", &found), offset, length);
    memcpy(line + head, text, length);
    note(line, head + length);
    free(line);
}

ssize_t write(int fd, const void *text, size_t length) {
    write_call call = (write_call)real("write");
    ssize_t done;
    off_t offset = 0;
    if (!concerns_fd(fd)) return call(fd, text, length);
    switch (strike('w')) {
    case 2: call(fd, text, length / 2); kill(getpid(), SIGKILL); break;
    case 1:
        if (lasting && number == at && length > 1) return call(fd, text, length / 2); /* the rest fails in the next call */
        *__errno_location() = (int)code;
        return -1;
    }
    if (recording()) offset = ((lseek_call)real("lseek64"))(fd, 0, 1);
    done = call(fd, text, length);
    if (recording()) {
        off_t end = ((lseek_call)real("lseek64"))(fd, 0, 1);
        note_write(fd, text, done, done > 0 && end - done != offset ? end - done : offset);
    }
    return done;
}

static ssize_t writing(int fd, const void *text, size_t length, off_t offset) {
    pwrite_call call = (pwrite_call)real("pwrite64");
    ssize_t done;
    if (!concerns_fd(fd)) return call(fd, text, length, offset);
    switch (strike('w')) {
    case 2: call(fd, text, length / 2, offset); kill(getpid(), SIGKILL); break;
    case 1:
        if (number == at && length > 1) call(fd, text, length / 2, offset);
        *__errno_location() = (int)code;
        return -1;
    }
    done = call(fd, text, length, offset);
    note_write(fd, text, done, offset);
    return done;
}
ssize_t pwrite(int fd, const void *text, size_t length, off_t offset) { return writing(fd, text, length, offset); }
ssize_t pwrite64(int fd, const void *text, size_t length, off_t offset) { return writing(fd, text, length, offset); }

typedef int (*truncate_call)(int, off_t);

static int truncating(int fd, off_t size) {
    char line[128];
    struct statx found;
    int done;
    if (!concerns_fd(fd)) return ((truncate_call)real("ftruncate64"))(fd, size);
    if (failing('w')) return -1;
    done = ((truncate_call)real("ftruncate64"))(fd, size);
    if (!done && recording()) note(line, snprintf(line, sizeof line, "T %lu %ld\n", inode(fd, "", &found), size));
    return done;
}
int ftruncate(int fd, off_t size) { return truncating(fd, size); }
int ftruncate64(int fd, off_t size) { return truncating(fd, size); }

/* Syncing */

typedef int (*fd_call)(int);

static int syncing(int fd, const char *name) {
    char line[128];
    struct statx found;
    int done;
    if (!concerns_fd(fd)) return ((fd_call)real(name))(fd);
    if (failing('s')) return -1;
    done = ((fd_call)real(name))(fd);
    if (!done && recording()) note(line, snprintf(line, sizeof line, "S %lu\n", inode(fd, "", &found)));
    return done;
}
int fsync(int fd) { return syncing(fd, "fsync"); }
int fdatasync(int fd) { return syncing(fd, "fdatasync"); }

/* Names */

typedef int (*mkdirat_call)(int, const char *, mode_t);
typedef int (*unlinkat_call)(int, const char *, int);
typedef int (*renameat2_call)(int, const char *, int, const char *, unsigned int);

static int making(int directory, const char *path, mode_t mode) {
    char whole[PATH], line[PATH + 128];
    struct statx found;
    int done, counted = concerns(directory, path, whole);
    if (counted && failing('n')) return -1;
    done = ((mkdirat_call)real("mkdirat"))(directory, path, mode);
    if (!done && counted && recording()) {
        inode(directory, path, &found);
        note(line, snprintf(line, sizeof line, "M %lu %o %u %u %s\n", found.ino, found.mode, found.uid, found.gid, whole));
    }
    return done;
}
int mkdir(const char *path, mode_t mode) { return making(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) { return making(directory, path, mode); }

static int removing(int directory, const char *path, int flags) {
    char whole[PATH], line[PATH + 128];
    int done, counted = concerns(directory, path, whole);
    if (counted && failing('u')) return -1;
    done = ((unlinkat_call)real("unlinkat"))(directory, path, flags);
    if (!done && counted && recording()) note(line, snprintf(line, sizeof line, "U %s\n", whole));
    return done;
}
int unlink(const char *path) { return removing(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return removing(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int directory, const char *path, int flags) { return removing(directory, path, flags); }

static int renaming(int from, const char *old, int to, const char *new, unsigned int flags) {
    char first[PATH], second[PATH], line[2 * PATH + 128];
    int done, counted = concerns(from, old, first) & concerns(to, new, second);
    if (counted && failing('n')) return -1;
    done = ((renameat2_call)real("renameat2"))(from, old, to, new, flags);
    if (!done && counted && recording()) note(line, snprintf(line, sizeof line, "R %s\t%s\n", first, second));
    return done;
}
int rename(const char *old, const char *new) { return renaming(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return renaming(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned int flags) {
    return renaming(from, old, to, new, flags);
}

/* The clock */

typedef int (*clock_call)(int, struct timespec *);

int clock_gettime(int which, struct timespec *time) {
    int done = ((clock_call)real("clock_gettime"))(which, time);
    begin();
    if (!done && (which == 0 || which == 5)) time->tv_sec += clock_shift; /* CLOCK_REALTIME, and the coarse one */
    return done;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(0, &now)) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

long time(long *into) {
    struct timespec now;
    clock_gettime(0, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

typedef int (*usleep_call)(unsigned);
typedef int (*nanosleep_call)(const struct timespec *, struct timespec *);

int usleep(unsigned microseconds) {
    begin();
    return ((usleep_call)real("usleep"))(microseconds / haste);
}

int nanosleep(const struct timespec *asked, struct timespec *left) {
    struct timespec less = *asked;
    long all;
    begin();
    all = (asked->tv_sec * 1000000000 + asked->tv_nsec) / haste;
    less.tv_sec = all / 1000000000;
    less.tv_nsec = all % 1000000000;
    return ((nanosleep_call)real("nanosleep"))(&less, left);
}
