/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The init of a virtual machine that holds nothing else: run the lines of /cases and print what each one did, then
 * power off. A line is a command of words between single blanks; one that starts with "node1 " runs in a cpuset whose
 * memory is node 1.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        perror(path);
    close(fd);
}

static void run(char *line)
{
    char *words[64] = { 0 };
    int status = 0, n = 0, limited = strncmp(line, "node1 ", 6) == 0;
    pid_t child = fork();
    if (child == 0) {
        if (limited)
            put("/cgroup/node1/cgroup.procs", "0");
        for (char *word = strtok(line + (limited ? 6 : 0), " "); word && n < 63; word = strtok(NULL, " "))
            words[n++] = word;
        dup2(STDOUT_FILENO, STDERR_FILENO);
        execv(words[0], words);
        _exit(99);
    }
    waitpid(child, &status, 0);
    printf("\n@status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int main(void)
{
    static char line[4096];
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/cgroup", 0755);
    if (mount("none", "/proc", "proc", 0, NULL) || mount("none", "/sys", "sysfs", 0, NULL) || mount("none", "/cgroup", "cgroup2", 0, NULL))
        perror("mount");
    put("/cgroup/cgroup.subtree_control", "+cpuset");
    mkdir("/cgroup/node1", 0755);
    put("/cgroup/node1/cpuset.mems", "1");
    setvbuf(stdout, NULL, _IONBF, 0);
    FILE *cases = fopen("/cases", "r");
    while (cases && fgets(line, sizeof line, cases)) {
        line[strcspn(line, "\n")] = '\0';
        printf("@case %s\n", line);
        run(line);
    }
    puts("@end");
    sync();
    reboot(RB_POWER_OFF);
    return 0;
}
