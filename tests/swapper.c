/* Lets names in a directory change places as fast as the machine can, as a hostile owner of it would.

   Prototypes are written out so that a compiler is enough, without the C library's headers; see races.py, which builds
   and loads it. */

extern int renameat2(int, const char *, int, const char *, unsigned int);
extern int rename(const char *, const char *);
extern int usleep(unsigned int);

enum { HERE = -100, EXCHANGE = 2 };

/* Exchange `one` with each of `others` in turn and back again, until *stop; *count says how often something changed.
   In between it looks away for `pause` microseconds, so that whoever is attacked gets somewhere at times. */
void swap(const char *one, const char **others, int many, unsigned int pause, volatile int *stop, volatile long *count)
{
    for (int turn = 0; !*stop; turn = (turn + 1) % many) {
        if (renameat2(HERE, one, HERE, others[turn], EXCHANGE) == 0)
            ++*count;
        if (pause)
            usleep(pause);
        if (renameat2(HERE, others[turn], HERE, one, EXCHANGE) == 0)
            ++*count;
        if (pause)
            usleep(pause);
    }
}
