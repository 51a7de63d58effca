/* Preloaded into a broker: what FAULT_DIR says happens to syncs of files below FAULT_PREFIX.
   While a file fsync_hang is there they do not return; a file fsync_eio makes the next one fail, and is removed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *directory = getenv("FAULT_DIR"), *prefix = getenv("FAULT_PREFIX");
    char link[64], path[PATH_MAX], flag[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || !directory || !prefix) return 0;
    path[length] = 0;
    if (strncmp(path, prefix, strlen(prefix))) return 0;
    snprintf(flag, sizeof flag, "%s/fsync_hang", directory);
    while (!access(flag, F_OK)) usleep(20000);
    snprintf(flag, sizeof flag, "%s/fsync_eio", directory);
    if (unlink(flag)) return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd) { return fails(fd) ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }

int fdatasync(int fd) { return fails(fd) ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
