/* Sends more short messages than anybody keeps room for before any of them is received: no send that returns at once may wait for that.
 *
 * usage: mpi_flood MESSAGES BYTES, of two ranks
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
	int rank, messages, bytes, wrong = 0;
	char *content;
	MPI_Request *requests;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (count != 3)
		MPI_Abort(MPI_COMM_WORLD, 2);
	messages = atoi(words[1]), bytes = atoi(words[2]);
	content = malloc((size_t)messages * bytes);
	requests = malloc(messages * sizeof *requests);
	if (rank == 0) {
		for (int at = 0; at < messages; at++) {
			char *its = content + (size_t)at * bytes;

			memset(its, at, bytes);
			MPI_Isend(its, bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &requests[at]);
		}
		printf("sent\n");
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1)
		for (int at = 0; at < messages; at++) {
			MPI_Recv(content, bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			wrong += content[0] != (char)at || content[bytes - 1] != (char)at;
		}
	else
		MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("received, %d wrong\n", wrong);
	MPI_Finalize();
	return wrong != 0;
}
