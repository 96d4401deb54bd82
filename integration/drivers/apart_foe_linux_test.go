package drivers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foeApart has the foe do to its agent what it may not, since that is another
// user's.
const foeApart = "apart"

// touch tries everything by which one process changes another, and prints what
// was not refused as another user's.
func touch() int {
	refused := map[string]error{}
	threads, _ := filepath.Glob("/proc/1/task/*")
	for sig := unix.Signal(1); sig <= 64; sig++ {
		byDescriptor(sig)
	}
	for sig := range unix.Signal(65) {
		for how, err := range signalled(sig, threads) {
			refused[fmt.Sprintf("signal %d by %s", sig, how)] = err
		}
	}
	for what, err := range meddled() {
		refused[what] = err
	}
	fmt.Println(foeTried, len(refused))
	for what, err := range refused {
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	return 0
}

// signalled is what the kernel says to a signal sent in every way.
func signalled(sig unix.Signal, threads []string) map[string]error {
	is := map[string]error{"kill": unix.Kill(1, sig)}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(filepath.Base(thread))
		err := unix.Tgkill(1, tid, sig)
		if !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
			is["tgkill"] = err
		}
	}
	var info [128]byte
	queued := int32(-1) // SI_QUEUE
	binary.NativeEndian.PutUint32(info[0:], uint32(sig))
	binary.NativeEndian.PutUint32(info[8:], uint32(queued))
	is["rt_sigqueueinfo"] = call(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(sig), uintptr(unsafe.Pointer(&info)))()
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		is["pidfd"] = unix.PidfdSendSignal(fd, sig, nil, 0)
		unix.Close(fd)
	}
	return is
}

// byDescriptor has the kernel send a signal for a pipe that can be read. Nobody
// is told whether it may.
func byDescriptor(sig unix.Signal) {
	var fds [2]int
	if unix.Pipe(fds[:]) != nil {
		return
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, 1)
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETSIG, int(sig))
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_ASYNC)
	unix.Write(fds[1], []byte("x"))
	unix.Close(fds[0])
	unix.Close(fds[1])
}

// meddled is what it says to all that is no signal.
func meddled() map[string]error {
	var limit unix.Rlimit
	var cpus unix.CPUSet
	cpus.Set(0)
	param := new(int32)
	return map[string]error{
		"prlimit to read":    unix.Prlimit(1, unix.RLIMIT_NOFILE, nil, &limit),
		"prlimit to set":     unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil),
		"setpriority":        unix.Setpriority(unix.PRIO_PROCESS, 1, 19),
		"sched_setaffinity":  unix.SchedSetaffinity(1, &cpus),
		"sched_setscheduler": call(unix.SYS_SCHED_SETSCHEDULER, 1, unix.SCHED_IDLE, uintptr(unsafe.Pointer(param)))(),
		"ioprio_set":         call(unix.SYS_IOPRIO_SET, 1, 1, 3<<13)(), // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_IDLE
		"ptrace":             unix.PtraceSeize(1),
		"process_vm_readv":   readMemory(1),
		"setuid":             unix.Setuid(0),
		"setgid":             unix.Setgid(0),
		"setgroups":          unix.Setgroups([]int{0}),
		"oom_score_adj":      opens("/proc/1/oom_score_adj", unix.O_WRONLY),
		"mem":                opens("/proc/1/mem", unix.O_RDONLY),
		"environ":            opens("/proc/1/environ", unix.O_RDONLY),
		"fd":                 opens("/proc/1/fd", unix.O_RDONLY),
		"a thread's fd":      opens("/proc/1/task/1/fd", unix.O_RDONLY),
		"root":               opens("/proc/1/root/", unix.O_RDONLY),
		"cwd":                opens("/proc/1/cwd/", unix.O_RDONLY),
		"exe":                opens("/proc/1/exe", unix.O_RDONLY),
		"the program":        unix.Access("/run/controld/agent", unix.W_OK),
	}
}

func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// statusOf reads some lines of a process's or thread's status.
func statusOf(text string, names ...string) string {
	var lines []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		for _, n := range names {
			if n == name {
				lines = append(lines, name+" "+strings.Join(strings.Fields(value), " "))
			}
		}
	}
	return strings.Join(lines, "; ")
}
