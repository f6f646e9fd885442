// An OpenAI-compatible streaming server of known timing, fast and precise enough to hold load clients against.
//   cc -O2 -o timed timed.c && ./timed PORT TTFT_MS ITL_US TOKENS_PER_CHUNK LOG
// A POST whose path ends in "completions" is answered by max_tokens tokens: the first chunk TTFT_MS after the
// request was complete, each next one ITL_US after the last. On SIGTERM, LOG gets one line per streamed answer:
//   complete first last chunks tokens
// the first three in nanoseconds of CLOCK_MONOTONIC. "complete" is when the kernel received the request's last
// byte, so that this program's own haste does not count; "first" and "last" are just before a chunk's write.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 16384, EVENTS = 512 };
#define CHAT_HEAD "data: {\"id\":\"chatcmpl-5f3c9a7e21b84d06\",\"object\":\"chat.completion.chunk\",\"created\":1764460800,\"model\":\"timed\",\"choices\":["
#define TEXT_HEAD "data: {\"id\":\"cmpl-5f3c9a7e21b84d06\",\"object\":\"text_completion\",\"created\":1764460800,\"model\":\"timed\",\"choices\":["

typedef struct { char *data; size_t size, room; } Buffer;
typedef struct {
  Buffer in, out;
  int64_t received, complete, first, last, due;
  long left, tokens, chunks;
  size_t heap;  // 1 + its place among the due ones; 0: not among them
  int chat, usage, full;
} Connection;
typedef struct { int64_t complete, first, last; long chunks, tokens; } Truth;

static Connection *connections[CONNECTIONS];
static int heap[CONNECTIONS], epoll_fd, tokens_per_chunk;
static size_t due_count, truth_count, truth_room;
static Truth *truths;
static int64_t ttft, itl;
static volatile sig_atomic_t stopping;

static void on_signal(int signal_) { (void)signal_; stopping = 1; }

static int64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void put(Buffer *buffer, const char *data, size_t size) {
  if (buffer->size + size > buffer->room) {
    buffer->room = 2 * (buffer->size + size);
    buffer->data = realloc(buffer->data, buffer->room);
    if (!buffer->data) abort();
  }
  memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
}

// --- a binary heap of the connections that have something due ---

static void place(size_t at, int fd) { heap[at] = fd; connections[fd]->heap = at + 1; }

static void sift(size_t at, int fd) {
  int64_t due = connections[fd]->due;
  for (; at && connections[heap[(at - 1) / 2]]->due > due; at = (at - 1) / 2) place(at, heap[(at - 1) / 2]);
  for (size_t child; (child = 2 * at + 1) < due_count; at = child) {
    if (child + 1 < due_count && connections[heap[child + 1]]->due < connections[heap[child]]->due) child++;
    if (connections[heap[child]]->due >= due) break;
    place(at, heap[child]);
  }
  place(at, fd);
}

static void schedule(int fd, int64_t due) {
  connections[fd]->due = due;
  sift(connections[fd]->heap ? connections[fd]->heap - 1 : due_count++, fd);
}

static void unschedule(int fd) {
  size_t at = connections[fd]->heap;
  if (!at) return;
  connections[fd]->heap = 0;
  if (at - 1 != --due_count) sift(at - 1, heap[due_count]);
}

// --- writing ---

static void drop(int fd) {
  Connection *c = connections[fd];
  unschedule(fd);
  close(fd);
  free(c->in.data);
  free(c->out.data);
  free(c);
  connections[fd] = NULL;
}

static int flush(int fd) {  // 0: the connection is gone
  Connection *c = connections[fd];
  size_t sent = 0;
  while (sent < c->out.size) {
    ssize_t n = send(fd, c->out.data + sent, c->out.size - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return drop(fd), 0;
    sent += n;
  }
  memmove(c->out.data, c->out.data + sent, c->out.size -= sent);
  int full = c->out.size > 0;
  if (full != c->full) {
    struct epoll_event event = {EPOLLIN | (full ? EPOLLOUT : 0), {.fd = fd}};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
    c->full = full;
  }
  return 1;
}

static void chunk(Connection *c, const char *head, const char *rest) {
  char size[24];
  size_t length = strlen(head) + strlen(rest);
  put(&c->out, size, snprintf(size, sizeof size, "%zx\r\n", length));
  put(&c->out, head, strlen(head));
  put(&c->out, rest, strlen(rest));
  put(&c->out, "\r\n", 2);
}

static void token_chunk(Connection *c) {
  char text[512] = "", rest[1024];
  long count = tokens_per_chunk < c->left ? tokens_per_chunk : c->left;
  for (long i = 0; i < count; i++) strcat(text, " the");
  const char *form = c->chat ? "{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
                             : "{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
  snprintf(rest, sizeof rest, form, text);
  chunk(c, c->chat ? CHAT_HEAD : TEXT_HEAD, rest);
  c->left -= count;
  c->chunks++;
}

static void last_chunks(Connection *c) {
  char rest[256];
  const char *head = c->chat ? CHAT_HEAD : TEXT_HEAD;
  chunk(c, head, c->chat ? "{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n" : "{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n");
  snprintf(rest, sizeof rest, "],\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":%ld,\"total_tokens\":%ld}}\n\n", c->tokens, c->tokens + 128);
  if (c->usage) chunk(c, head, rest);
  chunk(c, "data: [DONE]\n\n", "");
  put(&c->out, "0\r\n\r\n", 5);
}

static void log_truth(Connection *c) {
  if (truth_count == truth_room) truths = realloc(truths, (truth_room = 2 * truth_room + 1024) * sizeof *truths);
  truths[truth_count++] = (Truth){c->complete, c->first, c->last, c->chunks, c->tokens};
}

static void advance(int fd) {
  Connection *c = connections[fd];
  token_chunk(c);
  c->last = clock_ns(CLOCK_MONOTONIC);
  if (!c->first) c->first = c->last;
  if (c->left) {
    schedule(fd, c->due + itl);
  } else {
    last_chunks(c);
    unschedule(fd);
    log_truth(c);
  }
  flush(fd);
}

// --- requests ---

static void reply(Connection *c, const char *body) {
  char head[160];
  put(&c->out, head, snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", strlen(body)));
  put(&c->out, body, strlen(body));
}

static long number(const char *body, const char *key, long otherwise) {
  const char *at = strstr(body, key);
  if (!at) return otherwise;
  at += strlen(key);
  at += strspn(at, " :");
  return *at >= '0' && *at <= '9' ? atol(at) : otherwise;
}

static void begin(int fd, const char *body) {
  Connection *c = connections[fd];
  c->tokens = c->left = number(body, "\"max_completion_tokens\"", number(body, "\"max_tokens\"", 16));
  c->usage = strstr(body, "\"include_usage\"") != NULL;
  c->complete = c->received;
  c->first = c->chunks = 0;
  static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
  put(&c->out, HEAD, sizeof HEAD - 1);
  if (c->chat) chunk(c, CHAT_HEAD, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  schedule(fd, c->complete + ttft);
}

static void answer(int fd, const char *head, const char *body) {
  Connection *c = connections[fd];
  char whole[512];
  c->chat = strstr(head, "/chat/completions") != NULL;
  if (!strncmp(head, "POST", 4) && strstr(head, "completions")) {
    if (strstr(body, "\"stream\":true") || strstr(body, "\"stream\": true")) {
      begin(fd, body);
      return;
    }
    snprintf(whole, sizeof whole, "{\"id\":\"x\",\"object\":\"%s\",\"created\":1,\"model\":\"timed\",\"choices\":[{\"index\":0,%s,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":1,\"total_tokens\":129}}",
             c->chat ? "chat.completion" : "text_completion", c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\" the\"}" : "\"text\":\" the\"");
    reply(c, whole);
  } else {
    reply(c, strstr(head, "/models") ? "{\"object\":\"list\",\"data\":[{\"id\":\"timed\",\"object\":\"model\",\"created\":1,\"owned_by\":\"x\",\"max_model_len\":262144}]}" : "{}");
  }
}

static ssize_t receive(int fd, Connection *c) {
  static char data[1 << 18];
  char control[CMSG_SPACE(sizeof(struct timespec))];
  struct iovec part = {data, sizeof data};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t size = recvmsg(fd, &message, 0);
  if (size <= 0) return size;
  int64_t now = clock_ns(CLOCK_MONOTONIC), wall = clock_ns(CLOCK_REALTIME);
  c->received = now;
  struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
  if (stamp) {
    struct timespec t;
    memcpy(&t, CMSG_DATA(stamp), sizeof t);
    c->received = now - (wall - t.tv_sec * 1000000000LL - t.tv_nsec);
  }
  put(&c->in, data, size);
  return size;
}

static void read_requests(int fd) {
  Connection *c = connections[fd];
  ssize_t size = receive(fd, c);
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) { drop(fd); return; }
  put(&c->in, "", 1);  // for the string functions
  c->in.size--;
  char *end = strstr(c->in.data, "\r\n\r\n");
  if (!end) return;
  char *length = strcasestr(c->in.data, "content-length:");
  size_t whole = end + 4 - c->in.data + (length && length < end ? atol(length + 15) : 0);
  if (c->in.size < whole) return;
  *end = 0;
  c->in.size = 0;
  answer(fd, c->in.data, end + 4);
  flush(fd);
}

static void accept_all(int listener) {
  int fd, one = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    if (fd >= CONNECTIONS) { close(fd); continue; }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    connections[fd] = calloc(1, sizeof(Connection));
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
  }
}

static void run(int listener) {
  struct epoll_event events[EVENTS];
  while (!stopping) {
    int64_t left = due_count ? connections[heap[0]]->due - clock_ns(CLOCK_MONOTONIC) : 100000000;
    struct timespec timeout = {0, left < 0 ? 0 : left > 100000000 ? 100000000 : left};
    int count = epoll_pwait2(epoll_fd, events, EVENTS, &timeout, NULL);
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      if (fd == listener) { accept_all(listener); continue; }
      if (events[i].events & EPOLLOUT && !flush(fd)) continue;
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_requests(fd);
    }
    for (int64_t now = clock_ns(CLOCK_MONOTONIC); due_count && connections[heap[0]]->due <= now;) advance(heap[0]);
  }
}

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "usage: timed PORT TTFT_MS ITL_US TOKENS_PER_CHUNK LOG\n"), 2;
  ttft = atof(argv[2]) * 1e6;
  itl = atof(argv[3]) * 1e3;
  tokens_per_chunk = atoi(argv[4]);
  signal(SIGTERM, on_signal);
  prctl(PR_SET_TIMERSLACK, 1);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  if (bind(listener, (void *)&address, size) || listen(listener, 4096)) return perror("timed"), 1;
  getsockname(listener, (void *)&address, &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  epoll_fd = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {.fd = listener}};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
  run(listener);
  FILE *log = fopen(argv[5], "w");
  if (!log) return perror(argv[5]), 1;
  for (size_t i = 0; i < truth_count; i++)
    fprintf(log, "%ld %ld %ld %ld %ld\n", (long)truths[i].complete, (long)truths[i].first, (long)truths[i].last, truths[i].chunks, truths[i].tokens);
  return fclose(log) != 0;
}
