/* A rank forks, and the child calls MPI as if it were its parent: it must be refused, and the parent must not notice.
 *
 * usage: mpi_fork MESSAGES, of two ranks
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3000 };

int main(int count, char **words)
{
	int rank, messages, wrong = 0;
	char content[BYTES];

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	messages = atoi(words[1]);
	for (int at = 0; at < messages; at++) {
		for (int byte = 0; byte < BYTES; byte++)
			content[byte] = at + byte;
		if (rank == 0 && at % 10 == 5) {
			pid_t child = fork();
			int status;

			if (child == 0)
				_exit(MPI_Send(content, BYTES, MPI_CHAR, 1, 7, MPI_COMM_WORLD) == MPI_SUCCESS ? 3 : 0);
			waitpid(child, &status, 0);
			wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
		}
		if (rank == 0)
			MPI_Send(content, BYTES, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
		else
			MPI_Recv(content, BYTES, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int byte = 0; byte < BYTES; byte++)
			wrong += content[byte] != (char)(at + byte);
	}
	printf("rank %d: %d wrong\n", rank, wrong);
	MPI_Finalize();
	return wrong != 0;
}
