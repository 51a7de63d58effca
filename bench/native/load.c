/* The load generator: prebuilt Produce v7, Fetch v11 and OffsetCommit v6 frames, no work per message, so that it is not
 * what is measured.
 *
 * load produce PORT TOPIC PARTITIONS CONNECTIONS DEPTH RECORDS RECORD_BYTES REQUESTS
 * load replicate …                                                        (the same with acks=all)
 * load commit  PORT TOPIC CONNECTIONS DEPTH REQUESTS                      (each connection for a group of its own)
 * load fetch   PORT TOPIC PARTITIONS PARTITION_BYTES TOTAL_BYTES RAW      (RAW 1: the peer sends bytes, not batches)
 * load longpoll PORT TOPIC ROUNDS
 * load idle    PORT CONNECTIONS                                           (until its standard input closes)
 *
 * Prints one line of JSON. Any error code in a reply ends it with status 1.
 */
#include "net.h"

enum { BATCH_HEADER = 61 };

static int acks = 1;

static int dial(int port, int nonblocking) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    no_delay(fd);
    /* Faster than peers accept, their queues overflow and a connection takes a second, once it is tried again. */
    struct timespec until_accepted = {.tv_nsec = 200000};
    nanosleep(&until_accepted, NULL);
    if (nonblocking) fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static uint32_t crc32c(const uint8_t *data, size_t count) {
    uint32_t crc = ~0u;
    while (count--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
    }
    return ~crc;
}

static uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t left = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; left > 127; left >>= 7) *at++ = (uint8_t)(left | 128);
    *at++ = (uint8_t)left;
    return at;
}

/* A record batch of magic 2 without keys; returns its size. */
static size_t build_batch(uint8_t *out, int records, int record_bytes) {
    uint8_t *at = out + BATCH_HEADER, head[32];
    for (int i = 0; i < records; i++) {
        uint8_t *h = head;
        *h++ = 0;
        h = put_varint(put_varint(put_varint(put_varint(h, 0), i), -1), record_bytes);
        at = put_varint(at, h - head + record_bytes + 1);
        memcpy(at, head, (size_t)(h - head));
        at += h - head;
        for (int k = 0; k < record_bytes; k++) *at++ = (uint8_t)('a' + (i * 7 + k * 3) % 26);
        *at++ = 0;
    }
    size_t size = (size_t)(at - out);
    uint64_t timestamp_ms = (uint64_t)time(NULL) * 1000;
    uint8_t *h = put(put(put(out, 0, 8), size - 12, 4), (uint64_t)-1, 4);
    *h++ = 2;
    h = put(put(h + 4, 0, 2), (uint64_t)records - 1, 4);
    h = put(put(h, timestamp_ms, 8), timestamp_ms, 8);
    put(put(put(put(h, (uint64_t)-1, 8), (uint64_t)-1, 2), (uint64_t)-1, 4), (uint64_t)records, 4);
    put(out + 17, crc32c(out + 21, size - 21), 4);
    return size;
}

/* The frame's length is written by `finish`. */
static uint8_t *begin(uint8_t *frame, int api_key, int version) {
    return put_text(put(put(put(frame + 4, (uint64_t)api_key, 2), (uint64_t)version, 2), 0, 4), "bench");
}

static size_t finish(uint8_t *frame, uint8_t *end) {
    put(frame, (uint64_t)(end - frame - 4), 4);
    return (size_t)(end - frame);
}

/* `*partition_at` is where the partition can be changed from request to request. */
static size_t produce_frame(uint8_t *frame, const char *topic, const uint8_t *batch, size_t batch_bytes,
                            uint8_t **partition_at) {
    uint8_t *at = begin(frame, 0, 7);
    at = put(put(put(at, (uint64_t)-1, 2), (uint64_t)acks, 2), 30000, 4);
    at = put(put_text(put(at, 1, 4), topic), 1, 4);
    *partition_at = at;
    at = put(put(at, 0, 4), batch_bytes, 4);
    memcpy(at, batch, batch_bytes);
    return finish(frame, at + batch_bytes);
}

static size_t fetch_frame(uint8_t *frame, const char *topic, int partitions, const uint64_t *offsets, int max_wait_ms,
                          int partition_bytes) {
    uint8_t *at = begin(frame, 1, 11);
    at = put(put(put(put(at, (uint64_t)-1, 4), (uint64_t)max_wait_ms, 4), 1, 4), 50 << 20, 4);
    at = put(put(put(at, 0, 1), 0, 4), (uint64_t)-1, 4);
    at = put(put_text(put(at, 1, 4), topic), (uint64_t)partitions, 4);
    for (int i = 0; i < partitions; i++) {
        at = put(put(put(at, (uint64_t)i, 4), (uint64_t)-1, 4), offsets[i], 8);
        at = put(put(at, (uint64_t)-1, 8), (uint64_t)partition_bytes, 4);
    }
    return finish(frame, put(put(at, 0, 4), 0, 2));
}

/* By somebody who is no member: of partition 0, with a note. */
static size_t commit_frame(uint8_t *frame, const char *group, const char *topic) {
    uint8_t *at = put_text(begin(frame, 8, 6), group);
    at = put_text(put(at, (uint64_t)-1, 4), "");
    at = put(put_text(put(at, 1, 4), topic), 1, 4);
    at = put(put(put(at, 0, 4), 1000, 8), (uint64_t)-1, 4);
    return finish(frame, put_text(at, "a note"));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void send_all(int fd, const uint8_t *data, size_t count) {
    while (count) {
        ssize_t sent = send(fd, data, count, 0);
        if (sent < 0) die("send");
        data += sent;
        count -= (size_t)sent;
    }
}

static size_t receive_frame(int fd, uint8_t *buffer, size_t capacity) {
    size_t have = 0, need = 4;
    while (have < need) {
        ssize_t got = recv(fd, buffer + have, need == 4 ? capacity - have : need - have, 0);
        if (got <= 0) die("recv");
        have += (size_t)got;
        if (have >= 4 && need == 4) need = 4 + get(buffer, 4);
        if (need > capacity) die("reply larger than asked for");
    }
    return have;
}

/* `train` holds frames that are ready to be sent, one after the other: as many for each partition. */
typedef struct {
    int fd, in_flight;
    uint8_t *train;
    size_t frame_bytes, train_bytes, sent_bytes, due_bytes, received_bytes;
    double *sent_at_s;
    long first_open, next_open;
    uint8_t received[16384];
} Producer;

typedef struct {
    int partitions, depth;
    long requests, started, answered;
    size_t error_at;
    double *latencies_s;
} Run;

static void take_replies(Producer *p, Run *run) {
    for (;;) {
        ssize_t got = recv(p->fd, p->received + p->received_bytes, sizeof p->received - p->received_bytes, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) die("recv");
        p->received_bytes += (size_t)got;
        double received_at_s = now_s();
        uint8_t *at = p->received, *end = p->received + p->received_bytes;
        while (end - at >= 4 && (size_t)(end - at) >= 4 + get(at, 4)) {
            if (get(at + run->error_at, 2)) {
                fprintf(stderr, "a request was answered with error %d\n", (int16_t)get(at + run->error_at, 2));
                exit(1);
            }
            run->latencies_s[run->answered++] = received_at_s - p->sent_at_s[p->first_open++ % run->depth];
            p->in_flight--;
            at += 4 + get(at, 4);
        }
        p->received_bytes = (size_t)(end - at);
        memmove(p->received, at, p->received_bytes);
        if ((size_t)got < sizeof p->received / 2) return;
    }
}

/* Each request is a send of its own, as it is for real clients: joining them would flatter whoever only counts bytes. */
static void send_more(Producer *p, Run *run) {
    for (;;) {
        if (p->sent_bytes == p->due_bytes) {
            if (p->in_flight == run->depth || run->started == run->requests) return;
            if (p->sent_bytes == p->train_bytes) p->sent_bytes = p->due_bytes = 0;
            p->sent_at_s[p->next_open++ % run->depth] = now_s();
            p->due_bytes += p->frame_bytes;
            p->in_flight++;
            run->started++;
        }
        ssize_t sent = send(p->fd, p->train + p->sent_bytes, p->due_bytes - p->sent_bytes, 0);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) die("send");
        p->sent_bytes += (size_t)sent;
    }
}

static void build_train(Producer *p, const Run *run, const char *topic, const uint8_t *batch, size_t batch_bytes,
                        int first_partition) {
    p->train = allocate((batch_bytes + 256) * (size_t)run->partitions);
    for (int i = 0; i < run->partitions; i++) {
        uint8_t *partition_at;
        p->frame_bytes = produce_frame(p->train + p->train_bytes, topic, batch, batch_bytes, &partition_at);
        put(partition_at, (uint64_t)((first_partition + i) % run->partitions), 4);
        p->train_bytes += p->frame_bytes;
    }
}

/* Sends what the trains hold until all requests are answered, and prints what came of it. */
static int drive(Producer *producers, int connections, int port, Run *run, size_t payload_bytes) {
    run->latencies_s = allocate(sizeof(double) * (size_t)run->requests);
    int poll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        Producer *p = &producers[i];
        p->fd = dial(port, 1);
        p->sent_at_s = allocate(sizeof(double) * (size_t)run->depth);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = p};
        epoll_ctl(poll, EPOLL_CTL_ADD, p->fd, &event);
    }
    double begun_s = now_s(), cpu_begun = (double)clock();
    while (run->answered < run->requests) {
        struct epoll_event events[256];
        int count = epoll_wait(poll, events, 256, 10000);
        if (count <= 0) die("no reply for ten seconds");
        for (int i = 0; i < count; i++) {
            take_replies(events[i].data.ptr, run);
            send_more(events[i].data.ptr, run);
        }
    }
    double took_s = now_s() - begun_s, cpu_s = ((double)clock() - cpu_begun) / CLOCKS_PER_SEC;
    qsort(run->latencies_s, (size_t)run->answered, sizeof(double), by_value);
    printf("{\"requests_per_s\": %.1f, \"bytes_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"load_cpu\": %.3f, "
           "\"seconds\": %.4f}\n", (double)run->requests / took_s, (double)run->requests * (double)payload_bytes / took_s,
           run->latencies_s[run->answered / 2] * 1e6, run->latencies_s[run->answered * 99 / 100] * 1e6, cpu_s / took_s,
           took_s);
    return 0;
}

static int produce(char **argument) {
    int connections = atoi(argument[3]), records = atoi(argument[5]), record_bytes = atoi(argument[6]);
    const char *topic = argument[1];
    Run run = {.partitions = atoi(argument[2]), .depth = atoi(argument[4]), .requests = atol(argument[7])};
    run.error_at = 4 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
    uint8_t *batch = allocate((size_t)records * (size_t)(record_bytes + 24) + BATCH_HEADER);
    size_t batch_bytes = build_batch(batch, records, record_bytes);
    Producer *producers = allocate(sizeof(Producer) * (size_t)connections);
    for (int i = 0; i < connections; i++)
        build_train(&producers[i], &run, topic, batch, batch_bytes, i % run.partitions);
    return drive(producers, connections, atoi(argument[0]), &run, batch_bytes);
}

static int replicate(char **argument) {
    acks = -1;
    return produce(argument);
}

static int commit(char **argument) {
    int connections = atoi(argument[2]);
    const char *topic = argument[1];
    Run run = {.partitions = 1, .depth = atoi(argument[3]), .requests = atol(argument[4])};
    run.error_at = 4 + 4 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
    Producer *committers = allocate(sizeof(Producer) * (size_t)connections);
    for (int i = 0; i < connections; i++) {
        char group[32];
        snprintf(group, sizeof group, "bench-%d", i);
        committers[i].train = allocate(strlen(topic) + 256);
        committers[i].train_bytes = committers[i].frame_bytes = commit_frame(committers[i].train, group, topic);
    }
    return drive(committers, connections, atoi(argument[0]), &run, committers[0].frame_bytes);
}

/* Moves `offsets` past the batches of a Fetch v11 reply; returns the bytes of records in it. */
static size_t read_fetch_reply(const uint8_t *reply, uint64_t *offsets, uint64_t *high_watermarks) {
    const uint8_t *at = reply + 4 + 4 + 4 + 2 + 4;
    size_t record_bytes = 0;
    for (uint64_t topics = get(at, 4), t = (at += 4, 0); t < topics; t++) {
        at += 2 + get(at, 2);
        uint64_t partitions = get(at, 4);
        at += 4;
        for (uint64_t i = 0; i < partitions; i++) {
            uint64_t index = get(at, 4);
            if (get(at + 4, 2)) {
                fprintf(stderr, "fetch was answered with error %d\n", (int16_t)get(at + 4, 2));
                exit(1);
            }
            high_watermarks[index] = get(at + 6, 8);
            int32_t aborted = (int32_t)get(at + 30, 4);
            at += 34 + (aborted > 0 ? aborted * 16 : 0) + 4;
            int32_t length = (int32_t)get(at, 4);
            at += 4;
            const uint8_t *end = at + (length > 0 ? length : 0);
            record_bytes += (size_t)(end - at);
            for (; end - at >= BATCH_HEADER && end - at >= (int64_t)(12 + get(at + 8, 4)); at += 12 + get(at + 8, 4))
                offsets[index] = get(at, 8) + get(at + 23, 4) + 1;
            at = end;
        }
    }
    return record_bytes;
}

static int fetch(char **argument) {
    int partitions = atoi(argument[2]), partition_bytes = atoi(argument[3]), raw = atoi(argument[5]);
    double total_bytes = atof(argument[4]), got_bytes = 0;
    int fd = dial(atoi(argument[0]), 0);
    size_t capacity = (size_t)partitions * (size_t)partition_bytes + (8 << 20);
    uint8_t *reply = allocate(capacity), *frame = allocate(256 + 28 * (size_t)partitions);
    memset(reply, 1, capacity);
    uint64_t *offsets = allocate(8 * (size_t)partitions), *high_watermarks = allocate(8 * (size_t)partitions);
    long requests = 0;
    double begun_s = now_s();
    while (got_bytes < total_bytes) {
        send_all(fd, frame, fetch_frame(frame, argument[1], partitions, offsets, 500, partition_bytes));
        size_t size = receive_frame(fd, reply, capacity);
        requests++;
        size_t record_bytes = raw ? size : read_fetch_reply(reply, offsets, high_watermarks);
        if (!record_bytes) die("nothing to fetch");
        got_bytes += (double)record_bytes;
        for (int i = 0; i < partitions; i++)
            if (offsets[i] >= high_watermarks[i]) offsets[i] = 0;
    }
    double took_s = now_s() - begun_s;
    printf("{\"requests_per_s\": %.1f, \"bytes_per_s\": %.0f, \"seconds\": %.4f}\n", (double)requests / took_s,
           got_bytes / took_s, took_s);
    return 0;
}

/* One connection waits in a fetch, another produces one message: how long until the first has it. */
static int longpoll(char **argument) {
    int port = atoi(argument[0]), rounds = atoi(argument[2]);
    const char *topic = argument[1];
    int consumer = dial(port, 0), producer = dial(port, 0);
    uint8_t *reply = allocate(8 << 20), batch[512], frame[1024], *partition_at;
    size_t frame_bytes = produce_frame(frame, topic, batch, build_batch(batch, 1, 100), &partition_at);
    uint64_t offset = 0, high_watermark = 0;
    double *waits_s = allocate(sizeof(double) * (size_t)rounds);
    uint8_t fetching[256];
    for (int i = -1; i < rounds; i++) {
        size_t fetch_bytes = fetch_frame(fetching, topic, 1, &offset, 5000, 1 << 20);
        send_all(consumer, fetching, fetch_bytes);
        struct timespec until_parked = {.tv_nsec = 500000};
        nanosleep(&until_parked, NULL);
        double sent_s = now_s();
        send_all(producer, frame, frame_bytes);
        receive_frame(consumer, reply, 8 << 20);
        if (i >= 0) waits_s[i] = now_s() - sent_s;
        read_fetch_reply(reply, &offset, &high_watermark);
        receive_frame(producer, reply, 8 << 20);
    }
    qsort(waits_s, (size_t)rounds, sizeof(double), by_value);
    printf("{\"p50_us\": %.1f, \"p99_us\": %.1f}\n", waits_s[rounds / 2] * 1e6, waits_s[rounds * 99 / 100] * 1e6);
    return 0;
}

static int idle(char **argument) {
    int count = atoi(argument[1]);
    for (int i = 0; i < count; i++) dial(atoi(argument[0]), 0);
    printf("{\"connections\": %d}\n", count);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}

int main(int count, char **argument) {
    struct { const char *name; int arguments; int (*run)(char **); } commands[] = {
        {"produce", 8, produce}, {"replicate", 8, replicate}, {"commit", 5, commit}, {"fetch", 6, fetch}, {"longpoll", 3, longpoll},
        {"idle", 2, idle}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (count == commands[i].arguments + 2 && !strcmp(argument[1], commands[i].name))
            return commands[i].run(argument + 2);
    fprintf(stderr, "usage: see the top of load.c\n");
    return 2;
}
