/* The physical limit on this machine: programs that only move the same bytes.
 *
 * limits sink DIRECTORY REPLY_BYTES     receives frames, writes every byte to a file, answers each with a reply of that size
 * limits source FILE REPLY_BYTES        answers every frame with that many bytes of the file, by sendfile
 *
 * Prints the port it listens on. The sink's file only grows, as a broker's log does: a file that is cut and written
 * again would get memory pages that are warm already, which a log never has.
 */
#include "net.h"
#include <sys/sendfile.h>

enum { RECEIVE_BYTES = 1 << 20, REPLIES_BYTES = 1 << 16 };

static int listen_anywhere(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void send_all(int fd, const uint8_t *data, size_t count) {
    while (count) {
        ssize_t sent = send(fd, data, count, 0);
        if (sent < 0) return;
        data += sent;
        count -= (size_t)sent;
    }
}

typedef struct {
    int fd, length_bytes;
    uint8_t length[4];
    size_t left;
} Peer;

/* How many frames end within these bytes. */
static size_t frames_ended(Peer *peer, const uint8_t *data, size_t count) {
    size_t ended = 0;
    while (count) {
        if (!peer->left) {
            peer->length[peer->length_bytes++] = *data++;
            count--;
            if (peer->length_bytes < 4) continue;
            peer->length_bytes = 0;
            peer->left = get(peer->length, 4);
            continue;
        }
        size_t step = count < peer->left ? count : peer->left;
        data += step;
        count -= step;
        peer->left -= step;
        ended += !peer->left;
    }
    return ended;
}

static int open_file(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/sink.bin", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) die(path);
    return fd;
}

static _Noreturn void sink(const char *directory, size_t reply_bytes) {
    int listener = listen_anywhere(), poll = epoll_create1(0), file = open_file(directory);
    uint8_t *buffer = allocate(RECEIVE_BYTES), *replies = allocate(REPLIES_BYTES);
    size_t replies_at_once = REPLIES_BYTES / reply_bytes;
    memset(buffer, 1, RECEIVE_BYTES);
    for (size_t i = 0; i < replies_at_once; i++) put(replies + i * reply_bytes, reply_bytes - 4, 4);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < count; i++) {
            Peer *peer = events[i].data.ptr;
            if (!peer) {
                peer = allocate(sizeof *peer);
                peer->fd = accept(listener, NULL, NULL);
                no_delay(peer->fd);
                event.data.ptr = peer;
                epoll_ctl(poll, EPOLL_CTL_ADD, peer->fd, &event);
                continue;
            }
            ssize_t got = recv(peer->fd, buffer, RECEIVE_BYTES, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) {
                close(peer->fd);
                free(peer);
                continue;
            }
            if (write(file, buffer, (size_t)got) != got) die("write");
            for (size_t due = frames_ended(peer, buffer, (size_t)got); due;) {
                size_t batch = due < replies_at_once ? due : replies_at_once;
                send_all(peer->fd, replies, batch * reply_bytes);
                due -= batch;
            }
        }
    }
}

static _Noreturn void source(const char *path, size_t reply_bytes) {
    int listener = listen_anywhere(), file = open(path, O_RDONLY);
    if (file < 0) die(path);
    off_t size = lseek(file, 0, SEEK_END);
    uint8_t request[65536], length[4];
    put(length, reply_bytes, 4);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        no_delay(fd);
        for (off_t at = 0; recv(fd, request, sizeof request, 0) > 0;) {
            if (at + (off_t)reply_bytes > size) at = 0;
            send(fd, length, 4, MSG_MORE);
            for (size_t left = reply_bytes; left;) {
                ssize_t sent = sendfile(fd, file, &at, left);
                if (sent <= 0) break;
                left -= (size_t)sent;
            }
        }
        close(fd);
    }
}

int main(int count, char **argument) {
    if (count == 4 && !strcmp(argument[1], "sink")) sink(argument[2], (size_t)atol(argument[3]));
    if (count == 4 && !strcmp(argument[1], "source")) source(argument[2], (size_t)atol(argument[3]));
    fprintf(stderr, "usage: see the top of limits.c\n");
    return 2;
}
