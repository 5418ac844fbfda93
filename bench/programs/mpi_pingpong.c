/* How long a message takes one way, half of there and back.
 *
 *     mpi_pingpong ROUNDS BYTES...
 *
 * Rank 0 prints, for each size, its bytes and the seconds one way: the median of ten parts of the rounds, after one to warm up.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 10

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return (difference > 0) - (difference < 0);
}

int main(int count, char **words)
{
	int rank, rounds;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	rounds = count > 1 ? atoi(words[1]) : 1000;
	for (int each = 2; each < count; each++) {
		int bytes = atoi(words[each]);
		char *message = calloc(1, bytes + 1);
		double took[PARTS];

		for (int part = -1; part < PARTS; part++) {
			double began = MPI_Wtime();

			for (int round = 0; round < rounds / PARTS; round++) {
				if (rank == 0)
					MPI_Send(message, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
				MPI_Recv(message, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				if (rank == 1)
					MPI_Send(message, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
			}
			if (part >= 0)
				took[part] = (MPI_Wtime() - began) / (rounds / PARTS) / 2;
		}
		qsort(took, PARTS, sizeof *took, by_size);
		if (rank == 0)
			printf("%d %.9f\n", bytes, took[PARTS / 2]);
		free(message);
	}
	MPI_Finalize();
	return 0;
}
