/*
 * A process that is watched while it runs, for tests/publish.rs: it says its number and then does
 * what each character of its standard input asks for, answering "ok". It ends with the input.
 */
#define _GNU_SOURCE

#include "../check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, ROUNDS = 1000 };

/* The call site that holds most. */
__attribute__((noinline)) void *allocate_here(void)
{
    void *block = block_of(BLOCK, STREAM(0));
    /* Not a tail call: this function stands on the stack. */
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

static void churn(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        genesis_free(block_of(BLOCK, STREAM(1)), 0, STREAM(1));
    }
}

static void fork_a_child(void)
{
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    printf("%ld\n", (long)getpid());
    fflush(stdout);
    for (int command = getchar(); command != EOF; command = getchar()) {
        switch (command) {
        case 'a':
            allocate_here();
            break;
        case 'c':
            churn();
            break;
        case 'n':
            CHECK_OK(genesis_option_set("GENESIS_TOP", "on"));
            break;
        case 'o':
            CHECK_OK(genesis_option_set("GENESIS_TOP", "off"));
            break;
        case 'm':
            CHECK_OK(genesis_option_set("GENESIS_METRICS", "off"));
            break;
        case 'f':
            fork_a_child();
            break;
        case 'k':
            CHECK(kill(getpid(), SIGKILL) == 0);
            break;
        default:
            continue;
        }
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
