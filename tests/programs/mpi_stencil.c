/* Averages of neighbours on a grid whose rows the ranks share: each iteration waits for a row of both neighbours.
 *
 *     mpi_stencil ROWS COLUMNS ITERATIONS
 *
 * Rank 0 prints `begun`, and at last the checksum of the grid, which is the same for every number of ranks, and the
 * seconds from the first iteration's end to the last one's.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static double first_value(long row, long column)
{
	return (double)((row * 7919 + column * 104729) % 1009) / 1009.0;
}

/* Has the row above the first own one, and the one below the last. */
static void exchange(double *grid, long own, long columns)
{
	int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
	int below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
	MPI_Request requests[4];

	MPI_Irecv(grid, (int)columns, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Irecv(grid + (own + 1) * columns, (int)columns, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &requests[1]);
	MPI_Isend(grid + columns, (int)columns, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &requests[2]);
	MPI_Isend(grid + own * columns, (int)columns, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[3]);
	MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* The edges of the whole grid stay as they are. */
static void iterate(const double *grid, double *next, long first, long own, long rows, long columns)
{
	for (long row = 1; row <= own; row++) {
		const double *here = grid + row * columns;
		long whole = first + row - 1;
		int stays = whole == 0 || whole == rows - 1;

		for (long column = 0; column < columns; column++) {
			double *to = next + row * columns + column;

			if (stays || column == 0 || column == columns - 1)
				*to = here[column];
			else
				*to = 0.25 * (here[column - columns] + here[column + columns] + here[column - 1] +
					      here[column + 1]);
		}
	}
}

/* A sum over all cells, so that it does not matter who has which. */
static uint64_t checksum(const double *grid, long first, long own, long columns)
{
	uint64_t sum = 0;

	for (long cell = 0; cell < own * columns; cell++) {
		uint64_t bits, mixed = (uint64_t)(first * columns + cell) * 0x9e3779b97f4a7c15u;

		memcpy(&bits, grid + columns + cell, sizeof bits);
		mixed = (mixed ^ bits) * 0xbf58476d1ce4e5b9u;
		sum += mixed ^ mixed >> 31;
	}
	return sum;
}

int main(int count, char **words)
{
	long rows, columns, iterations, first, own;
	double *grid, *next, began = 0;
	uint64_t mine, all;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (count != 4 || atol(words[1]) < ranks)
		MPI_Abort(MPI_COMM_WORLD, 2);
	rows = atol(words[1]), columns = atol(words[2]), iterations = atol(words[3]);
	first = rows * rank / ranks;
	own = rows * (rank + 1) / ranks - first;
	grid = calloc((own + 2) * columns, sizeof *grid);
	next = calloc((own + 2) * columns, sizeof *next);
	for (long row = 0; row < own; row++)
		for (long column = 0; column < columns; column++)
			grid[(row + 1) * columns + column] = first_value(first + row, column);
	if (rank == 0) {
		printf("begun\n");
		fflush(stdout);
	}
	for (long iteration = 0; iteration <= iterations; iteration++) {
		double *was = grid;

		exchange(grid, own, columns);
		iterate(grid, next, first, own, rows, columns);
		grid = next, next = was;
		if (iteration == 0)
			began = MPI_Wtime();
	}
	double took = MPI_Wtime() - began, longest;

	mine = checksum(grid, first, own, columns);
	MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("checksum %016llx seconds %.6f\n", (unsigned long long)all, longest);
	free(grid);
	free(next);
	MPI_Finalize();
	return 0;
}
