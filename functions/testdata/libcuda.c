// A libcuda for tests: it keeps the books of devices that do not exist, in the file "books" beside it, and refuses what
// NVIDIA's refuses (CUDA driver API, "CUDA Checkpointing"). The functions test_… are the test's own.
//
// Build: cc -shared -fPIC -DVERSION=13000 -o libcuda.so.1 libcuda.c; 12080 is driver 570, and 12040 is 550.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { DEVICES = 4, PROCESSES = 32, VERBS = 5, CELLS = 64 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401, NOT_READY = 600, NOT_SUPPORTED = 801 };
enum { STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK };

struct process {
	int pid, state, managed, busy;
	int on[DEVICES];             // how many pages it has of each device
	uint32_t saved[DEVICES][CELLS]; // what it had there, while it is checkpointed
};

struct books {
	int made;
	int total[DEVICES], used[DEVICES];
	uint32_t memory[DEVICES][PROCESSES][CELLS]; // of each process: what it computes with
	struct process all[PROCESSES];
	int fail[VERBS], times[VERBS]; // the error of the next calls
	int hang[2 * VERBS];           // before a call has its effect, and after it
	int calls[VERBS];
};

static struct books *books;
static int file = -1, initialized;
static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;

static void unlock(void) {
	flock(file, LOCK_UN);
	pthread_mutex_unlock(&mine);
}

// dead processes have nothing any more.
static int ended(int pid) {
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *f = fopen(path, "r");
	if (!f) return 1;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	char *end = strrchr(text, ')');
	return !end || end[2] == 'Z' || end[2] == 'X';
}

static void lock(void) {
	pthread_mutex_lock(&mine);
	if (file < 0) {
		Dl_info here;
		char path[4096];
		dladdr((void *)lock, &here);
		snprintf(path, sizeof path, "%s", here.dli_fname);
		strcpy(strrchr(path, '/'), "/books");
		file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (file < 0 || ftruncate(file, sizeof *books)) abort();
		books = mmap(0, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		if (books == MAP_FAILED) abort();
	}
	while (flock(file, LOCK_EX) && errno == EINTR) {}
	if (!books->made) {
		books->made = 1;
		for (int d = 0; d < DEVICES; d++) books->total[d] = 100;
	}
	for (int p = 0; p < PROCESSES; p++) {
		struct process *x = &books->all[p];
		if (!x->pid || !ended(x->pid)) continue;
		if (x->state != CHECKPOINTED)
			for (int d = 0; d < DEVICES; d++) books->used[d] -= x->on[d];
		memset(x, 0, sizeof *x);
	}
}

static struct process *find(int pid) {
	for (int p = 0; p < PROCESSES; p++)
		if (books->all[p].pid == pid) return &books->all[p];
	return 0;
}

static void nap(void) { nanosleep(&(struct timespec){0, 200000}, 0); }

// device_of returns the device of a UUID, which ends in its number.
__attribute__((unused)) static int device_of(const unsigned char uuid[16]) {
	static const unsigned char zero[15];
	return !memcmp(uuid, zero, 15) && uuid[15] < DEVICES ? uuid[15] : -1;
}

int cuInit(unsigned flags) {
	(void)flags;
	initialized = 1;
	return OK;
}

int cuDriverGetVersion(int *version) {
	*version = VERSION;
	return OK;
}

// test_allocate gives the caller pages of each device that it sees, with content that depends on the device's place only.
int test_allocate(int pages, int managed) {
	lock();
	struct process *x = find(0);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	if (!x || !visible) {
		unlock();
		return INVALID;
	}
	int slot = x - books->all, place = 0;
	x->pid = getpid();
	x->managed = managed;
	for (const char *c = visible; c && *c; c = strchr(c, ','), c = c ? c + 1 : 0, place++) {
		int d = c[strcspn(c, ",") - 1] - '0';
		if (books->used[d] + pages > books->total[d]) {
			memset(x, 0, sizeof *x);
			unlock();
			return NO_MEMORY;
		}
		books->used[d] += pages;
		x->on[d] = pages;
		for (int k = 0; k < CELLS; k++) books->memory[d][slot][k] = 1000 * place + k;
	}
	unlock();
	return OK;
}

// test_compute returns a sum of what the caller has on its devices. Like every call of CUDA it waits while it is locked.
int test_compute(uint32_t *sum) {
	for (;; nap()) {
		lock();
		struct process *x = find(getpid());
		if (x && x->state == RUNNING) {
			int slot = x - books->all, at = 0;
			*sum = 0;
			for (int d = 0; d < DEVICES; d++)
				if (x->on[d]) at++;
			for (int d = 0; d < DEVICES; d++)
				for (int k = 0; x->on[d] && k < CELLS; k++) *sum += books->memory[d][slot][k] * (k + 1) + at;
			unlock();
			return OK;
		}
		unlock();
	}
}

void test_fail(int verb, int code, int times) {
	lock();
	books->fail[verb] = code;
	books->times[verb] = times;
	unlock();
}

// test_hang makes calls hang before they have an effect, or after it (verb + VERBS). It sets 1; a call that hangs sets 2.
void test_hang(int at, int on) {
	lock();
	books->hang[at] = on;
	unlock();
}

int test_hangs(int at) {
	lock();
	int is = books->hang[at] == 2;
	unlock();
	return is;
}

int test_used(int device) {
	lock();
	int n = books->used[device];
	unlock();
	return n;
}

// test_reserve takes pages of a device, as another process would.
void test_reserve(int device, int pages) {
	lock();
	books->used[device] += pages;
	unlock();
}

int test_calls(int verb) {
	lock();
	int n = books->calls[verb];
	unlock();
	return n;
}

void test_busy(int pid, int busy) {
	lock();
	struct process *x = find(pid);
	if (x) x->busy = busy;
	unlock();
}

#if VERSION >= 12080
static void hang(int at) {
	for (int first = 1; books->hang[at]; first = 0) {
		if (first) books->hang[at] = 2;
		unlock();
		nap();
		lock();
	}
}

// begin returns the process, locked, or an error.
static int begin(int verb, int pid, struct process **x) {
	lock();
	books->calls[verb]++;
	hang(verb);
	if (!initialized) return NOT_INITIALIZED;
	*x = pid > 0 ? find(pid) : 0;
	if (!*x) return INVALID;
	if (books->times[verb] > 0) {
		books->times[verb]--;
		return books->fail[verb];
	}
	return OK;
}

static int end(int verb, int code) {
	hang(verb + VERBS);
	unlock();
	return code;
}

static int reserved(const uint64_t *args, int from) {
	for (int k = from; k < 8; k++)
		if (args[k]) return 1;
	return 0;
}

int cuCheckpointProcessGetState(int pid, int *state) {
	struct process *x = 0;
	int code = begin(STATE, pid, &x);
	if (!code) *state = x->state;
	return end(STATE, code);
}

int cuCheckpointProcessLock(int pid, uint64_t *args) {
	struct process *x = 0;
	int code = begin(LOCK, pid, &x);
	if (code) return end(LOCK, code);
	if (args[0] >> 32 || reserved(args, 1)) return end(LOCK, INVALID);
	if (x->state != RUNNING) return end(LOCK, ILLEGAL_STATE);
	if (x->busy) return end(LOCK, NOT_READY);
	x->state = LOCKED;
	return end(LOCK, OK);
}

int cuCheckpointProcessCheckpoint(int pid, uint64_t *args) {
	struct process *x = 0;
	int code = begin(CHECKPOINT, pid, &x);
	if (code) return end(CHECKPOINT, code);
	if (reserved(args, 0)) return end(CHECKPOINT, INVALID);
	if (x->state != LOCKED) return end(CHECKPOINT, ILLEGAL_STATE);
	if (x->managed) { // 1: it stays as it was; 2: "does not attempt to keep the process in a good state"
		if (x->managed == 2) x->state = FAILED;
		return end(CHECKPOINT, NOT_SUPPORTED);
	}
	int slot = x - books->all;
	for (int d = 0; d < DEVICES; d++) {
		if (!x->on[d]) continue;
		memcpy(x->saved[d], books->memory[d][slot], sizeof x->saved[d]);
		memset(books->memory[d][slot], 0xff, sizeof x->saved[d]);
		books->used[d] -= x->on[d];
	}
	x->state = CHECKPOINTED;
	return end(CHECKPOINT, OK);
}

int cuCheckpointProcessRestore(int pid, uint64_t *args) {
	struct process *x = 0;
	int code = begin(RESTORE, pid, &x);
	if (code) return end(RESTORE, code);
	const unsigned char(*pairs)[2][16] = (void *)args[0];
	unsigned count = args[1], onto[DEVICES];
	if (args[1] >> 32 || reserved(args, 2) || !pairs != !count) return end(RESTORE, INVALID);
	if (x->state != CHECKPOINTED) return end(RESTORE, ILLEGAL_STATE);
	for (int d = 0; d < DEVICES; d++) onto[d] = count ? DEVICES : d;
	for (unsigned k = 0; k < count; k++) {
		int old = device_of(pairs[k][0]), now = device_of(pairs[k][1]);
		if (old < 0 || now < 0 || onto[old] != DEVICES) return end(RESTORE, INVALID);
		onto[old] = now;
	}
	int next[DEVICES] = {0};
	for (int d = 0; d < DEVICES; d++) {
		if (!x->on[d]) continue;
		if (onto[d] == DEVICES || next[onto[d]]) return end(RESTORE, INVALID); // each must be named, and one is one
		if (count && onto[d] != (unsigned)d && onto[d] == DEVICES - 1) return end(RESTORE, NOT_SUPPORTED); // of another chip
		if (books->used[onto[d]] + x->on[d] > books->total[onto[d]]) return end(RESTORE, NO_MEMORY);
		next[onto[d]] = x->on[d];
	}
	if (VERSION < 13000 && count) return end(RESTORE, NOT_SUPPORTED);
	int slot = x - books->all;
	uint32_t saved[DEVICES][CELLS];
	memcpy(saved, x->saved, sizeof saved);
	for (int d = 0; d < DEVICES; d++) {
		if (!x->on[d]) continue;
		memcpy(books->memory[onto[d]][slot], saved[d], sizeof saved[d]);
		books->used[onto[d]] += x->on[d];
	}
	memcpy(x->on, next, sizeof next);
	x->state = LOCKED;
	return end(RESTORE, OK);
}

int cuCheckpointProcessUnlock(int pid, uint64_t *args) {
	struct process *x = 0;
	int code = begin(UNLOCK, pid, &x);
	if (code) return end(UNLOCK, code);
	if (reserved(args, 0)) return end(UNLOCK, INVALID);
	if (x->state != LOCKED) return end(UNLOCK, ILLEGAL_STATE);
	x->state = RUNNING;
	return end(UNLOCK, OK);
}
#endif
