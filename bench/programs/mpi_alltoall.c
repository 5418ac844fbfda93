/* How long a message of every rank to every other takes.
 *
 *     mpi_alltoall ROUNDS BYTES
 *
 * Rank 0 prints the seconds of each round, after one to warm up.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	int rank, ranks, rounds, bytes;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (count != 3)
		MPI_Abort(MPI_COMM_WORLD, 2);
	rounds = atoi(words[1]), bytes = atoi(words[2]);
	char *sent = malloc((size_t)ranks * bytes + 1), *received = malloc((size_t)ranks * bytes + 1);

	for (int to = 0; to < ranks; to++)
		memset(sent + (size_t)to * bytes, rank * 31 + to, bytes);
	for (int round = -1; round < rounds; round++) {
		double began = MPI_Wtime();

		MPI_Alltoall(sent, bytes, MPI_BYTE, received, bytes, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			if (received[(size_t)from * bytes] != (char)(from * 31 + rank))
				MPI_Abort(MPI_COMM_WORLD, 1);
		if (rank == 0 && round >= 0)
			printf("%.9f\n", MPI_Wtime() - began);
	}
	free(sent);
	free(received);
	MPI_Finalize();
	return 0;
}
