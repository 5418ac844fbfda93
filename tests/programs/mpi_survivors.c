/* Three ranks, of which the last one is lost: the others are told so, and go on with each other.
 *
 *     mpi_survivors kill          it kills itself
 *     mpi_survivors wait          it waits until whoever started it does something to it or its host
 *     mpi_survivors kill send     nobody receives from it: they send to it
 *     mpi_survivors kill probe    they probe for a message from it, after which Open MPI ends them
 *
 * Rank 2 prints `lost PID` when all have spoken with all. Ranks 0 and 1 print `rank R: error after S s: TEXT` for a receive from it (or
 * what else they do), and `rank R: went on` when they have exchanged messages after that.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 20000
#define ROUNDS 200

static int rank;

/* Messages between ranks 0 and 1. */
static void exchange(int rounds)
{
	static char sent[BYTES], received[BYTES];

	for (int round = 0; round < rounds; round++) {
		memset(sent, round + rank, BYTES);
		MPI_Sendrecv(sent, BYTES, MPI_BYTE, 1 - rank, 1, received, BYTES, MPI_BYTE, 1 - rank, 1,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (received[0] != (char)(round + 1 - rank) || received[BYTES - 1] != received[0]) {
			fprintf(stderr, "rank %d: wrong content\n", rank);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

/* What ranks 0 and 1 do with the lost one until it fails: `begin` once, and `go_on` again and again, which return MPI's error. */
static const char *verb = "receive";
static char byte;
static MPI_Request request;

static int begin(void)
{
	if (strcmp(verb, "receive") == 0)
		return MPI_Irecv(&byte, 1, MPI_BYTE, 2, 2, MPI_COMM_WORLD, &request);
	return MPI_SUCCESS;
}

static int go_on(void)
{
	int is_there;

	if (strcmp(verb, "send") == 0)
		return MPI_Send(&byte, 1, MPI_BYTE, 2, 2, MPI_COMM_WORLD);
	if (strcmp(verb, "probe") == 0)
		return MPI_Iprobe(2, 2, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
	return MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
}

int main(int count, char **words)
{
	char text[MPI_MAX_ERROR_STRING];
	int error, length, is_done = 0, is_over = 0;
	double began;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (count < 2) {
		fprintf(stderr, "mpi_survivors: say kill or wait\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	if (count > 2)
		verb = words[2];
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (int[3]){0}, 1, MPI_INT, MPI_COMM_WORLD);
	if (rank == 2) {
		printf("lost %d\n", (int)getpid());
		fflush(stdout);
		if (strcmp(words[1], "kill") == 0)
			raise(SIGKILL);
		for (;;)
			pause();
	}
	began = MPI_Wtime();
	error = begin();
	/* Neither goes on before both were told. */
	while (!is_over) {
		if (!is_done) {
			if (error == MPI_SUCCESS)
				error = go_on();
			if (error != MPI_SUCCESS) {
				is_done = 1;
				MPI_Error_string(error, text, &length);
				printf("rank %d: error after %.3f s: %s\n", rank, MPI_Wtime() - began, text);
				fflush(stdout);
			}
		}
		exchange(1);
		MPI_Sendrecv(&is_done, 1, MPI_INT, 1 - rank, 3, &is_over, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		is_over &= is_done;
	}
	exchange(ROUNDS);
	printf("rank %d: went on\n", rank);
	fflush(stdout);
	/* Who finalizes waits for all. */
	_exit(0);
}
