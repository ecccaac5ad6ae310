/*
 * Fork and exec. In the child of a process that has used CUDA every call ends at once with the
 * driver's own error, whatever the parent's threads were doing. A child forked before is a process
 * like any other, and a newly started program is served.
 *
 * A child that hangs is ended by its alarm, and the parent sees that.
 */
#include "cuda.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HAMMERS = 3, FORKS = 25, HANGS_AFTER_SECONDS = 20 };

static void *inherited;

static void use(void)
{
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, MIB));
    CHECK(block != NULL);
    CHECK_OK(cudaFree(block));
    CHECK(is_on() ? served() > 0 : served() == -1);
}

/* What simcuda answers in a forked child, as CUDA does. */
static void be_refused(void)
{
    void *block = NULL;
    size_t free_bytes, total_bytes;
    EXPECT(CUDA_NOT_INITIALIZED, cudaMalloc(&block, MIB));
    CHECK(block == NULL);
    CHECK(cudaMallocAsync(&block, MIB, NULL) != CUDA_SUCCESS);
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS);
    CHECK(cudaFree(inherited) != CUDA_SUCCESS);
    CHECK(cudaFreeAsync(inherited, NULL) != CUDA_SUCCESS);
    CHECK(cudaDeviceSynchronize() != CUDA_SUCCESS);
    CHECK(cudaGetLastError() != CUDA_SUCCESS);
}

static void in_child(void (*work)(void))
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(HANGS_AFTER_SECONDS);
        work();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    EXPECT(0, status);
}

static void be_refused_in_a_grandchild(void)
{
    be_refused();
    in_child(be_refused);
}

static void become_another_program(void)
{
    execl("/proc/self/exe", "fork", "use", (char *)NULL);
    exit(3);
}

static void after_use(void)
{
    CHECK_OK(cudaMalloc(&inherited, MIB));
    in_child(be_refused);
    in_child(be_refused_in_a_grandchild);
    in_child(become_another_program);
    CHECK_SERVED(1);
    CHECK_OK(cudaFree(inherited));
    use();
}

static void before_use(void)
{
    in_child(use);
    in_child(after_use);
    use();
    CHECK_OK(cudaMalloc(&inherited, MIB));
    in_child(be_refused);
}

/* The same process as a new program: its blocks ended with the old one. */
static void exec(void)
{
    void *block;
    CHECK_OK(cudaMalloc(&block, MIB));
    become_another_program();
}

static volatile int is_over;

static void *hammer(void *argument)
{
    (void)argument;
    for (size_t bytes = 1; !is_over; bytes = bytes * 7 % (3 * MIB) + 1) {
        void *block;
        CHECK_OK(cudaMalloc(&block, bytes));
        CHECK_OK(cudaFree(block));
    }
    return NULL;
}

static void hammered(void)
{
    pthread_t threads[HAMMERS];
    CHECK_OK(cudaMalloc(&inherited, MIB));
    for (int index = 0; index < HAMMERS; index++) {
        CHECK(pthread_create(&threads[index], NULL, hammer, NULL) == 0);
    }
    for (int index = 0; index < FORKS; index++) {
        in_child(be_refused);
    }
    is_over = 1;
    for (int index = 0; index < HAMMERS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK_OK(cudaFree(inherited));
}

static void *first_use(void *argument)
{
    (void)argument;
    use();
    return NULL;
}

/* Without the C library's lock of exit(), which the other thread may have held. */
static void leave(void)
{
    _exit(0);
}

/* Refused, or served if it was the first call of all; at once in both cases. */
static void get_an_answer(void)
{
    void *block;
    (void)cudaMalloc(&block, MIB);
    leave();
}

static void fork_during(void (*work)(void))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first_use, NULL) == 0);
    in_child(work);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* While the runtime opens the driver, which a child cannot use then without the preload library
   either: the loader's lock is taken for ever. */
static void fork_during_first_call(void)
{
    fork_during(leave);
}

/* While Genesis is opened. */
static void fork_during_first_allocation(void)
{
    cuda_stream stream;
    CHECK_OK(cudaStreamCreate(&stream));
    fork_during(get_an_answer);
}

static void during_first_use(void)
{
    /* Each round in a process that has not used CUDA yet. */
    for (int index = 0; index < FORKS; index++) {
        in_child(fork_during_first_call);
        in_child(fork_during_first_allocation);
    }
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"use", use},           {"after_use", after_use}, {"before_use", before_use},
        {"exec", exec},         {"hammered", hammered},   {"during_first_use", during_first_use},
    };
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (count == 2 && strcmp(arguments[1], cases[index].name) == 0) {
            cases[index].run();
            return 0;
        }
    }
    CHECK(!"the case is known");
    return 1;
}
