/* Three ranks, of which the last one is lost: the others are told so, and go on with each other.
 *
 *     mpi_survivors kill          it kills itself
 *     mpi_survivors wait          it waits until whoever started it does something to it or its host
 *
 * Rank 2 prints `lost PID` when all have spoken with all. Ranks 0 and 1 print `rank R: error after S s: TEXT` for a receive from it,
 * and `rank R: went on` when they have exchanged messages after that.
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

int main(int count, char **words)
{
	char text[MPI_MAX_ERROR_STRING];
	int error, length, is_done = 0, is_over = 0;
	MPI_Request request;
	double began;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (int[3]){0}, 1, MPI_INT, MPI_COMM_WORLD);
	if (rank == 2) {
		printf("lost %d\n", (int)getpid());
		fflush(stdout);
		if (count == 2 && strcmp(words[1], "kill") == 0)
			raise(SIGKILL);
		for (;;)
			pause();
	}
	began = MPI_Wtime();
	error = MPI_Irecv(text, 1, MPI_BYTE, 2, 2, MPI_COMM_WORLD, &request);
	/* Neither goes on before both were told. */
	while (!is_over) {
		if (!is_done) {
			if (error == MPI_SUCCESS)
				error = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
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
