/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * timer ROUNDS RUNS -- COMMAND... -- COMMAND...: run the commands in turn, RUNS times each in every round, and print a
 * line for each round with the mean time of each command in microseconds.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static double time_once(char **command)
{
    double start = now();
    pid_t child;
    int status;
    if (posix_spawnp(&child, command[0], NULL, NULL, command, environ) != 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "timer: %s failed\n", command[0]);
        exit(1);
    }
    return now() - start;
}

int main(int argc, char **argv)
{
    char **commands[16];
    int n = 0;
    for (int i = 3; i < argc && n < 16; i++)
        if (strcmp(argv[i], "--") == 0) {
            argv[i] = NULL;
            commands[n++] = argv + i + 1;
        }
    for (long round = argc > 2 ? strtol(argv[1], NULL, 10) : 0; round > 0; round--) {
        double total[16] = { 0 };
        long runs = strtol(argv[2], NULL, 10);
        for (long run = 0; run < runs; run++)
            for (int c = 0; c < n; c++)
                total[(c + run) % n] += time_once(commands[(c + run) % n]); /* each starts a turn as often as the others */
        for (int c = 0; c < n; c++)
            printf("%.3f%s", total[c] / (double)runs, c + 1 < n ? " " : "\n");
    }
    return 0;
}
