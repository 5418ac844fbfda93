/* What the referee measures with, the same on an emulated host and in a guest: one stream whose window is
 * sampled, numbered datagrams that come back, and numbered datagrams whose arrival is counted.
 *
 *     probe serve PORT                           the far end of all three, until it is killed
 *     probe stream ADDRESS PORT NAME SECONDS     samples of TCP_INFO, one line each 10 ms
 *     probe ping ADDRESS PORT COUNT              round-trip times in ns, one line each
 *     probe count ADDRESS PORT COUNT             how many arrived, and in how many runs the others were lost
 *
 * Lines of `stream`: time in us, window and threshold in segments, state (0 is open, 3 is recovery),
 * retransmitted segments, smoothed RTT in us, delivered segments, acknowledgements received.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_NS 10000000LL
#define PING_NS 10000000LL
/* 1,000 bytes every 150 us are 57 Mb/s with their headers. */
#define COUNT_NS 150000LL
#define DATAGRAM 1000
#define NONE UINT32_MAX

enum kind { ECHOED, COUNTED, ASKED };

struct datagram {
	uint32_t kind, number;
	uint32_t arrived, runs;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void wait_until(int64_t due)
{
	struct timespec at = {due / 1000000000LL, due % 1000000000LL};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in found = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};

	if (inet_pton(AF_INET, address, &found.sin_addr) != 1) {
		fprintf(stderr, "probe: %s is no IPv4 address\n", address);
		exit(2);
	}
	return found;
}

static int bound(int type, const char *port)
{
	struct sockaddr_in any = address_of("0.0.0.0", port);
	int one = 1, fd = socket(AF_INET, type, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&any, sizeof(any)))
		fail("bind");
	return fd;
}

static int connected(int type, const char *address, const char *port)
{
	struct sockaddr_in to = address_of(address, port);
	int fd = socket(AF_INET, type, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		fail("connect");
	return fd;
}

static void on_datagram(int fd)
{
	static uint32_t arrived, runs, expected;
	char bytes[DATAGRAM];
	struct datagram head;
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	ssize_t got = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &length);

	if (got < (ssize_t)sizeof(head))
		return;
	memcpy(&head, bytes, sizeof(head));
	if (head.kind == COUNTED) {
		if (head.number == 0)
			arrived = runs = expected = 0;
		arrived++;
		runs += head.number != expected;
		expected = head.number + 1;
		return;
	}
	if (head.kind == ASKED) {
		head.arrived = arrived;
		/* The last ones may be missing too. */
		head.runs = runs + (head.number != expected);
		memcpy(bytes, &head, sizeof(head));
	}
	sendto(fd, bytes, got, 0, (struct sockaddr *)&from, length);
}

static void serve(const char *port)
{
	static char sink[1 << 18];
	struct pollfd fds[3] = {
		{bound(SOCK_STREAM, port), POLLIN, 0}, {bound(SOCK_DGRAM, port), POLLIN, 0}, {-1, POLLIN, 0}};

	/* A receiver that is not run for a while must not lose what arrived: that is not the link's loss. */
	int room = 1 << 24;

	if (setsockopt(fds[1].fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		fail("SO_RCVBUFFORCE");
	if (listen(fds[0].fd, 1))
		fail("listen");
	puts("listening");
	fflush(stdout);
	while (poll(fds, 3, -1) > 0) {
		if (fds[1].revents)
			on_datagram(fds[1].fd);
		if (fds[2].fd >= 0 && fds[2].revents && read(fds[2].fd, sink, sizeof(sink)) <= 0) {
			close(fds[2].fd);
			fds[2].fd = -1;
		} else if (fds[2].fd < 0 && fds[0].revents) {
			fds[2].fd = accept(fds[0].fd, NULL, NULL);
		}
	}
}

static void print_sample(int fd, int64_t since)
{
	struct tcp_info info;
	socklen_t length = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		fail("TCP_INFO");
	printf("%lld %u %u %u %u %u %u %u\n", (long long)since / 1000, info.tcpi_snd_cwnd, info.tcpi_snd_ssthresh,
	       info.tcpi_ca_state, info.tcpi_total_retrans, info.tcpi_rtt, info.tcpi_delivered, info.tcpi_segs_in);
}

static void stream(const char *address, const char *port, const char *name, int seconds)
{
	static char bytes[1 << 16];
	/* Enough waits to fill any window here, and little enough to end soon. */
	int unsent = 1 << 18, fd = connected(SOCK_STREAM, address, port);
	int64_t start = now_ns(), end = start + seconds * 1000000000LL, due = start;

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)))
		fail(name);
	if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)))
		fail("TCP_NOTSENT_LOWAT");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (int64_t now = start; now < end; now = now_ns()) {
		if (now >= due) {
			print_sample(fd, now - start);
			due += SAMPLE_NS;
			continue;
		}
		struct pollfd writable = {fd, POLLOUT, 0};
		struct timespec left = {0, due - now};

		if (ppoll(&writable, 1, &left, NULL) > 0 && write(fd, bytes, sizeof(bytes)) < 0 && errno != EAGAIN)
			fail("write");
	}
}

static void ping(const char *address, const char *port, uint32_t count)
{
	int fd = connected(SOCK_DGRAM, address, port);

	for (uint32_t number = 0; number < count; number++) {
		struct datagram out = {ECHOED, number, 0, 0}, in = {ECHOED, NONE, 0, 0};
		struct pollfd readable = {fd, POLLIN, 0};
		int64_t sent = now_ns();

		if (send(fd, &out, sizeof(out), 0) < 0)
			fail("send");
		while (in.number != number && poll(&readable, 1, 1000) > 0)
			if (recv(fd, &in, sizeof(in), 0) < 0)
				fail("recv");
		if (in.number == number)
			printf("%lld\n", (long long)(now_ns() - sent));
		wait_until(sent + PING_NS);
	}
}

static void count(const char *address, const char *port, uint32_t count)
{
	int fd = connected(SOCK_DGRAM, address, port);
	char bytes[DATAGRAM] = {0};
	int64_t due = now_ns();
	struct datagram head = {COUNTED, 0, 0, 0};
	struct pollfd readable = {fd, POLLIN, 0};

	for (; head.number < count; head.number++, due += COUNT_NS) {
		memcpy(bytes, &head, sizeof(head));
		if (send(fd, bytes, sizeof(bytes), 0) < 0)
			fail("send");
		wait_until(due);
	}
	/* The question may be lost as well. */
	head.kind = ASKED;
	do {
		if (send(fd, &head, sizeof(head), 0) < 0)
			fail("send");
	} while (poll(&readable, 1, 1000) == 0);
	if (recv(fd, &head, sizeof(head), 0) < 0)
		fail("recv");
	printf("%u %u\n", head.arrived, head.runs);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve(argv[2]);
	else if (argc == 6 && !strcmp(argv[1], "stream"))
		stream(argv[2], argv[3], argv[4], atoi(argv[5]));
	else if (argc == 5 && !strcmp(argv[1], "ping"))
		ping(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 5 && !strcmp(argv[1], "count"))
		count(argv[2], argv[3], atoi(argv[4]));
	else {
		fprintf(stderr, "usage: probe serve PORT | stream ADDRESS PORT NAME SECONDS | ping ADDRESS PORT COUNT |"
				" count ADDRESS PORT COUNT\n");
		return 2;
	}
	return 0;
}
