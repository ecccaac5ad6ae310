/*
 * Every function of the library in a forked child, with nothing for arguments, while threads of the
 * parent allocate: it returns, in time. The arguments of this program are the functions' names.
 */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HAMMERS = 2, HANGS_AFTER_SECONDS = 20 };

typedef uintptr_t function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static void *hammer(void *argument)
{
    const genesis_stream stream = argument;
    for (void *block = NULL;; genesis_free(block, 0, 0, stream)) {
        block = genesis_malloc(3000, 0, stream);
        if (block == NULL) {
            return NULL;
        }
    }
}

/* Calls the function `name` with as many zeros as any function takes. */
static void call(void *library, const char *name)
{
    void *const found = dlsym(library, name);
    function *called = NULL;
    CHECK(found != NULL);
    memcpy(&called, &found, sizeof called);
    (void)called(0, 0, 0, 0, 0, 0);
}

int main(int count, char **arguments)
{
    void *const library = dlopen(NULL, RTLD_NOW);
    CHECK(library != NULL && count > 1);
    genesis_free(block_of(1000, STREAM(0)), 0, 0, STREAM(0));
    for (uintptr_t number = 1; number <= HAMMERS; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, hammer, STREAM(number)) == 0);
    }
    for (int index = 1; index < count; index++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            alarm(HANGS_AFTER_SECONDS);
            call(library, arguments[index]);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        if (status != 0) {
            fprintf(stderr, "%s: wait status %#x\n", arguments[index], (unsigned int)status);
            return 1;
        }
    }
    return 0;
}
