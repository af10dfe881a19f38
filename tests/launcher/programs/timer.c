/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * timer ROUNDS RUNS -- COMMAND... -- COMMAND...: run the commands in turn, RUNS times each in every round, and print a
 * line for each round with two figures for each command: microseconds of wall clock and of processor, means of the runs.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void run(char **command, double spent[2])
{
    double start = now();
    struct rusage used;
    pid_t child;
    int status;
    if (posix_spawnp(&child, command[0], NULL, NULL, command, environ) != 0 || wait4(child, &status, 0, &used) != child || status != 0) {
        fprintf(stderr, "timer: %s failed\n", command[0]);
        exit(1);
    }
    spent[0] += now() - start;
    spent[1] += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
    char **commands[16];
    int order[16], n = 0;
    for (int i = 3; i < argc && n < 16; i++)
        if (strcmp(argv[i], "--") == 0) {
            argv[i] = NULL;
            order[n] = n;
            commands[n++] = argv + i + 1;
        }
    for (long round = argc > 2 ? strtol(argv[1], NULL, 10) : 0; round > 0; round--) {
        double spent[16][2] = { 0 };
        long runs = strtol(argv[2], NULL, 10);
        for (long turn = 0; turn < runs; turn++)
            for (int left = n; left > 0; left--) { /* in a new order each turn: what runs before leaves its traces in the caches */
                int at = (int)(random() % left), c = order[at];
                order[at] = order[left - 1];
                order[left - 1] = c;
                run(commands[c], spent[c]);
            }
        for (int c = 0; c < n; c++)
            printf("%.3f %.3f%s", spent[c][0] / (double)runs, spent[c][1] / (double)runs, c + 1 < n ? " " : "\n");
        fflush(stdout);
    }
    return 0;
}
