/* Messages between two ranks or more, each looked at when it is there.
 *
 *     mpi_messages [SECTION]...          all sections but `too-long`, or these, in this order
 *     mpi_messages too-long BYTES        a message of so many bytes is refused, and others go on
 *
 * Rank 0 prints a line for each section. A rank that finds something wrong says what, and aborts.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGEST (5 << 20)
/* More than any peer has credits for. */
#define FLOOD 3000
#define FLOOD_BYTES 1024
#define ORDERED 300

static int rank, ranks;
static unsigned char *sent, *received;

#define EXPECT(holds)                                                                     \
	do {                                                                              \
		if (!(holds)) {                                                           \
			fprintf(stderr, "rank %d, line %d: not so: %s\n", rank, __LINE__, #holds); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                     \
		}                                                                         \
	} while (0)

/* Content that no other message has. */
static void write_content(unsigned char *bytes, size_t length, uint32_t who, uint32_t number)
{
	uint32_t state = who * 2654435761u + number * 40503u + (uint32_t)length + 1;

	for (size_t at = 0; at < length; at++) {
		state = state * 1664525u + 1013904223u;
		bytes[at] = state >> 24;
	}
}

static int has_content(const unsigned char *bytes, size_t length, uint32_t who, uint32_t number)
{
	unsigned char *expected = malloc(length + 1);
	int same;

	write_content(expected, length, who, number);
	same = memcmp(bytes, expected, length) == 0;
	free(expected);
	return same;
}

static int counted(const MPI_Status *status)
{
	int count;

	MPI_Get_count(status, MPI_BYTE, &count);
	return count;
}

/* Every rank to the next one around, of sizes on either side of every limit that there may be. */
static void sizes(void)
{
	static const int lengths[] = {0,     1,     8,      63,     64,     255,     256,         1000,    1472,
				      4096,  8191,  8192,   8193,   8900,   8972,    8973,        16384,   65507,
				      65536, 65537, 131072, 262144, 262147, 1 << 20, (1 << 20) + 1, LARGEST};
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (int round = 0; round < 2; round++) {
		for (size_t each = 0; each < sizeof lengths / sizeof *lengths; each++) {
			int length = lengths[each];
			MPI_Status status;

			write_content(sent, length, rank, each);
			memset(received, 0xee, length + 1);
			MPI_Sendrecv(sent, length, MPI_BYTE, right, each, received, LARGEST, MPI_BYTE, left, each,
				     MPI_COMM_WORLD, &status);
			EXPECT(counted(&status) == length);
			EXPECT(status.MPI_SOURCE == left && status.MPI_TAG == (int)each);
			EXPECT(has_content(received, length, left, each));
			EXPECT(received[length] == 0xee || length == LARGEST);
		}
	}
}

/* A rank to itself. */
static void self(void)
{
	static const int lengths[] = {0, 8, 70000, 1 << 20};

	for (int each = 0; each < 4; each++) {
		MPI_Status status;

		write_content(sent, lengths[each], rank, each);
		MPI_Sendrecv(sent, lengths[each], MPI_BYTE, rank, 1, received, LARGEST, MPI_BYTE, rank, 1,
			     MPI_COMM_WORLD, &status);
		EXPECT(counted(&status) == lengths[each]);
		EXPECT(has_content(received, lengths[each], rank, each));
	}
}

/* Rank 0 to rank 1: by tag, in another order than they were sent. */
static void tags(void)
{
	if (rank == 0) {
		for (int tag = 0; tag < 8; tag++) {
			/* Some wait at the sender, some at the receiver. */
			int length = tag % 2 ? 200000 + tag : 100 + tag;
			unsigned char *own = sent + tag * 300000;
			static MPI_Request requests[8];

			write_content(own, length, 0, tag);
			MPI_Isend(own, length, MPI_BYTE, 1, 100 + tag, MPI_COMM_WORLD, &requests[tag]);
			if (tag == 7)
				MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
		}
	} else if (rank == 1) {
		for (int tag = 7; tag >= 0; tag--) {
			MPI_Status status;

			MPI_Recv(received, LARGEST, MPI_BYTE, MPI_ANY_SOURCE, 100 + tag, MPI_COMM_WORLD, &status);
			EXPECT(status.MPI_SOURCE == 0 && status.MPI_TAG == 100 + tag);
			EXPECT(has_content(received, counted(&status), 0, tag));
		}
	}
}

/* Messages of one tag come in the order in which they were sent, from each rank, whatever their sizes. */
static void order(void)
{
	if (rank != 0) {
		for (int number = 0; number < ORDERED; number++) {
			int length = 4 + (number % 7 == 3 ? 150000 : number % 50 * 40);

			memcpy(sent, &number, 4);
			MPI_Send(sent, length, MPI_BYTE, 0, number % 3, MPI_COMM_WORLD);
		}
		return;
	}
	int *next = calloc(ranks, sizeof *next);

	for (int count = 0; count < ORDERED * (ranks - 1); count++) {
		MPI_Status status;
		int number;

		MPI_Recv(received, LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
		memcpy(&number, received, 4);
		EXPECT(number == next[status.MPI_SOURCE]);
		EXPECT(status.MPI_TAG == number % 3);
		EXPECT(counted(&status) == 4 + (number % 7 == 3 ? 150000 : number % 50 * 40));
		next[status.MPI_SOURCE]++;
	}
	free(next);
}

/* Looking before receiving, with and without taking the message away from others. */
static void probe(void)
{
	static const int lengths[] = {0, 77, 9000, 300001};
	int flag;

	if (rank == 0) {
		for (int each = 0; each < 4; each++) {
			write_content(sent, lengths[each], 0, each);
			MPI_Send(sent, lengths[each], MPI_BYTE, 1, 20, MPI_COMM_WORLD);
			MPI_Send(sent, lengths[each], MPI_BYTE, 1, 21, MPI_COMM_WORLD);
		}
		MPI_Recv(received, 1, MPI_BYTE, 1, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Status status;
		MPI_Message message, none;

		MPI_Iprobe(0, 99, MPI_COMM_WORLD, &flag, &status);
		EXPECT(!flag);
		MPI_Improbe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, &none, &status);
		EXPECT(!flag);
		for (int each = 0; each < 4; each++) {
			MPI_Probe(MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &status);
			EXPECT(status.MPI_SOURCE == 0 && counted(&status) == lengths[each]);
			do {
				MPI_Iprobe(0, 20, MPI_COMM_WORLD, &flag, &status);
			} while (!flag);
			MPI_Recv(received, counted(&status), MPI_BYTE, 0, 20, MPI_COMM_WORLD, &status);
			EXPECT(has_content(received, lengths[each], 0, each));
			/* The others of tag 21 wait behind, and a receive that is posted later must not get this one. */
			MPI_Mprobe(0, 21, MPI_COMM_WORLD, &message, &status);
			EXPECT(counted(&status) == lengths[each]);
			MPI_Mrecv(received, LARGEST, MPI_BYTE, &message, &status);
			EXPECT(message == MPI_MESSAGE_NULL);
			EXPECT(counted(&status) == lengths[each] && has_content(received, lengths[each], 0, each));
		}
		MPI_Send(sent, 1, MPI_BYTE, 0, 22, MPI_COMM_WORLD);
	}
}

/* A receive that was taken back gets nothing; the message goes to the next one. */
static void cancel(void)
{
	if (rank == 0) {
		MPI_Recv(received, 1, MPI_BYTE, 1, 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		write_content(sent, 5000, 0, 3);
		MPI_Send(sent, 5000, MPI_BYTE, 1, 30, MPI_COMM_WORLD);
	} else if (rank == 1) {
		MPI_Request request;
		MPI_Status status;
		int cancelled;

		memset(received, 0xee, 5000);
		MPI_Irecv(received, 5000, MPI_BYTE, 0, 30, MPI_COMM_WORLD, &request);
		MPI_Cancel(&request);
		MPI_Wait(&request, &status);
		MPI_Test_cancelled(&status, &cancelled);
		EXPECT(cancelled);
		MPI_Send(sent, 1, MPI_BYTE, 0, 31, MPI_COMM_WORLD);
		MPI_Recv(received + LARGEST / 2, 5000, MPI_BYTE, 0, 30, MPI_COMM_WORLD, &status);
		EXPECT(has_content(received + LARGEST / 2, 5000, 0, 3));
		EXPECT(received[0] == 0xee && received[4999] == 0xee);
	}
}

/* A synchronous send does not end before its receive has begun. */
static void synchronous(void)
{
	for (int length = 8; length <= 500000; length += 499992) {
		if (rank == 0) {
			MPI_Request request;
			int done;

			write_content(sent, length, 0, 4);
			MPI_Issend(sent, length, MPI_BYTE, 1, 40, MPI_COMM_WORLD, &request);
			for (int count = 0; count < 100; count++) {
				MPI_Test(&request, &done, MPI_STATUS_IGNORE);
				EXPECT(!done);
			}
			MPI_Send(NULL, 0, MPI_BYTE, 1, 41, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			MPI_Ssend(sent, length, MPI_BYTE, 1, 42, MPI_COMM_WORLD);
		} else if (rank == 1) {
			for (int tag = 41; tag != 43; tag = tag == 41 ? 40 : tag == 40 ? 42 : 43)
				MPI_Recv(received, length, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			EXPECT(has_content(received, length, 0, 4));
		}
	}
}

/* A message that is longer than its receive is an error there, and nothing is written behind the end. */
static void truncation(void)
{
	static const int lengths[] = {100, 20000, 1 << 20};

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int each = 0; each < 6; each++) {
		int length = lengths[each % 3], waits = each / 3;

		if (rank == 0) {
			MPI_Request request;

			/* Once it comes to a receive that waits, once it waits for one. */
			if (waits)
				MPI_Recv(NULL, 0, MPI_BYTE, 1, 51, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			write_content(sent, length, 0, each);
			MPI_Isend(sent, length, MPI_BYTE, 1, 50, MPI_COMM_WORLD, &request);
			MPI_Send(NULL, 0, MPI_BYTE, 1, 52, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else if (rank == 1) {
			MPI_Request request;
			MPI_Status status;
			int error, class;

			memset(received, 0xee, length);
			if (!waits)
				MPI_Recv(NULL, 0, MPI_BYTE, 0, 52, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Irecv(received, 10, MPI_BYTE, 0, 50, MPI_COMM_WORLD, &request);
			if (waits)
				MPI_Send(NULL, 0, MPI_BYTE, 0, 51, MPI_COMM_WORLD);
			error = MPI_Wait(&request, &status);
			MPI_Error_class(error, &class);
			EXPECT(class == MPI_ERR_TRUNCATE);
			EXPECT(received[10] == 0xee && received[length - 1] == 0xee);
			if (waits)
				MPI_Recv(NULL, 0, MPI_BYTE, 0, 52, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Everybody to everybody. */
static void alltoall(void)
{
	static const int lengths[] = {1, 3000, 100000};

	for (int each = 0; each < 3; each++) {
		int length = lengths[each];
		long sum = 0, mine = rank + 1;

		for (int to = 0; to < ranks; to++)
			write_content(sent + (size_t)to * length, length, rank, to);
		MPI_Alltoall(sent, length, MPI_BYTE, received, length, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			EXPECT(has_content(received + (size_t)from * length, length, from, rank));
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		EXPECT(sum == (long)ranks * (ranks + 1) / 2);
		write_content(sent, length, rank, 9);
		MPI_Bcast(sent, length, MPI_BYTE, ranks - 1, MPI_COMM_WORLD);
		EXPECT(has_content(sent, length, ranks - 1, 9));
	}
}

/* Thousands of messages that nobody waits for, and behind them the one that is waited for. */
static void flood(void)
{
	MPI_Request *requests = malloc((FLOOD + 1) * sizeof *requests);

	if (rank != 0) {
		for (int number = 0; number < FLOOD; number++) {
			unsigned char *own = sent + (size_t)number * FLOOD_BYTES;

			write_content(own, FLOOD_BYTES, rank, number);
			MPI_Isend(own, FLOOD_BYTES, MPI_BYTE, 0, 1000 + number, MPI_COMM_WORLD, &requests[number]);
		}
		MPI_Isend(NULL, 0, MPI_BYTE, 0, 60, MPI_COMM_WORLD, &requests[FLOOD]);
		MPI_Waitall(FLOOD + 1, requests, MPI_STATUSES_IGNORE);
	} else {
		for (int from = 1; from < ranks; from++)
			MPI_Recv(NULL, 0, MPI_BYTE, from, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int number = FLOOD - 1; number >= 0; number--) {
			for (int from = 1; from < ranks; from++) {
				MPI_Recv(received, FLOOD_BYTES, MPI_BYTE, from, 1000 + number, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
				EXPECT(has_content(received, FLOOD_BYTES, from, number));
			}
		}
	}
	free(requests);
}

/* The same tags in two communicators. */
static void communicators(void)
{
	MPI_Comm other;
	int value = -1, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	for (int number = 0; number < 20; number++) {
		MPI_Request requests[2];
		int first = 2 * number, second = 2 * number + 1;

		MPI_Isend(&first, 1, MPI_INT, right, 70, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(&second, 1, MPI_INT, right, 70, other, &requests[1]);
		MPI_Recv(&value, 1, MPI_INT, left, 70, other, MPI_STATUS_IGNORE);
		EXPECT(value == second);
		MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		EXPECT(value == first);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	MPI_Comm_free(&other);
}

/* Longer than messages may be: an error for whoever sends it, and nothing else. */
static void too_long(size_t length)
{
	if (rank == 0) {
		void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		MPI_Datatype pieces;

		EXPECT(memory != MAP_FAILED && length % 4096 == 0);
		MPI_Type_contiguous(4096, MPI_BYTE, &pieces);
		MPI_Type_commit(&pieces);
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		EXPECT(MPI_Send(memory, (int)(length / 4096), pieces, 1, 80, MPI_COMM_WORLD) != MPI_SUCCESS);
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
		MPI_Type_free(&pieces);
		munmap(memory, length);
	}
	sizes();
}

static const struct {
	const char *name;
	void (*run)(void);
} sections[] = {
	{"sizes", sizes},   {"self", self},     {"tags", tags},
	{"order", order},   {"probe", probe},   {"cancel", cancel},
	{"synchronous", synchronous},           {"truncation", truncation},
	{"alltoall", alltoall},                 {"flood", flood},
	{"communicators", communicators},
};

#define SECTIONS (sizeof sections / sizeof *sections)

static int is_asked(const char *name, int count, char **asked)
{
	for (int each = 0; each < count; each++)
		if (strcmp(asked[each], name) == 0)
			return 1;
	return count == 0;
}

int main(int count, char **words)
{
	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	sent = malloc(LARGEST + 1);
	received = malloc(LARGEST + 1);
	EXPECT(sent != NULL && received != NULL && ranks > 1);
	if (count == 3 && strcmp(words[1], "too-long") == 0) {
		too_long(strtoull(words[2], NULL, 10));
		if (rank == 0)
			printf("too-long: well\n");
	}
	for (size_t each = 0; each < SECTIONS; each++) {
		if (!is_asked(sections[each].name, count - 1, words + 1))
			continue;
		sections[each].run();
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			printf("%s: well\n", sections[each].name);
			fflush(stdout);
		}
	}
	free(sent);
	free(received);
	MPI_Finalize();
	return 0;
}
