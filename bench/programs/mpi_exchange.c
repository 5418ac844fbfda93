/* How long an exchange takes: both ranks send to the other and receive from it.
 *
 *     mpi_exchange EXCHANGES BYTES...
 *
 * Rank 0 prints, for each size, its bytes and the seconds of each exchange, after one to warm up. An exchange lasts until both have the
 * other's message: it is the mean of both ranks' times, for one may begin when the other's message has long been on its way.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	int rank, exchanges;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	exchanges = count > 1 ? atoi(words[1]) : 10;
	double *took = calloc(exchanges, sizeof *took), *others = calloc(exchanges, sizeof *others);
	for (int each = 2; each < count; each++) {
		int bytes = atoi(words[each]);
		char *sent = malloc(bytes + 1), *received = malloc(bytes + 1);

		memset(sent, 'a' + rank, bytes);
		for (int number = -1; number < exchanges; number++) {
			double began = MPI_Wtime();

			MPI_Sendrecv(sent, bytes, MPI_BYTE, 1 - rank, 1, received, bytes, MPI_BYTE, 1 - rank, 1,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (received[0] != 'a' + 1 - rank || received[bytes - 1] != received[0])
				MPI_Abort(MPI_COMM_WORLD, 1);
			if (number >= 0)
				took[number] = MPI_Wtime() - began;
		}
		MPI_Sendrecv(took, exchanges, MPI_DOUBLE, 1 - rank, 2, others, exchanges, MPI_DOUBLE, 1 - rank, 2,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 0) {
			printf("%d", bytes);
			for (int number = 0; number < exchanges; number++)
				printf(" %.9f", (took[number] + others[number]) / 2);
			printf("\n");
			fflush(stdout);
		}
		free(sent);
		free(received);
	}
	MPI_Finalize();
	return 0;
}
