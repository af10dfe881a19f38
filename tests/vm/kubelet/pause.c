/* What the pods of the test bed run: it waits until it is told to end. As a process 1 it has to say itself that a signal ends it. */
#include <signal.h>
#include <unistd.h>

static void end(int number)
{
    _exit(number == SIGTERM ? 0 : 1);
}

int main(void)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;)
        pause();
}
