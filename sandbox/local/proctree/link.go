//go:build linux

package proctree

import (
	"bufio"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startPatience is how long a keeper may take to start a process. One that
// takes longer has been stopped, and is killed.
const startPatience = 30 * time.Second

// link is a keeper's process and the socket to it.
type link struct {
	keeper *Keeper
	proc   *os.Process
	conn   *net.UnixConn
	gone   chan struct{} // closed when it has been waited for: its orphans have come here

	sending sync.Mutex

	mu    sync.Mutex
	ready bool
	last  int
	kept  map[string]*kept // by id, until they exit
}

// dialKeeper starts a keeper's process.
func dialKeeper(k *Keeper) (*link, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer null.Close()
	proc, err := os.StartProcess(k.path, k.args, &os.ProcAttr{
		Dir: "/",
		// It should be small. With more turns than goroutines none of these
		// waits for another's.
		Env:   []string{"GOGC=20", "GOMAXPROCS=4"},
		Files: []*os.File{null, null, null, theirs},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	l := &link{keeper: k, proc: proc, conn: conn, gone: make(chan struct{}), kept: make(map[string]*kept)}
	k.pid.Store(int64(proc.Pid))
	go l.listen()
	return l, nil
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "keeper")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "keeper")
	conn, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// listen takes the keeper's reports until it ends.
func (l *link) listen() {
	r := bufio.NewReader(l.conn)
	for {
		words, err := readFrame(r)
		if err != nil || !l.handle(words) {
			break
		}
	}
	l.proc.Kill() // or it would have no one to report to
	l.proc.Wait()
	l.conn.Close()
	l.keeper.here.Store(true)
	l.keeper.pid.CompareAndSwap(int64(l.proc.Pid), 0)
	close(l.gone)
}

// handle takes one report; false when it makes no sense.
func (l *link) handle(words []string) bool {
	if words[0] == "ready" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ready = true
		return true
	}
	if len(words) != 3 {
		return false
	}
	number, err := strconv.ParseUint(words[2], 10, 32)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kept[words[1]]
	return err == nil && k != nil && k.report(words[0], number)
}

func (l *link) lost() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// wasReady tells whether the process was a keeper at all.
func (l *link) wasReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// send sends a frame and descriptors with it.
func (l *link) send(files []int, words ...string) error {
	frame := makeFrame(words...)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	n, _, err := l.conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = l.conn.Write(frame[n:])
	}
	return err
}

// start has the keeper start a process.
func (l *link) start(c Command, m mark) (*kept, error) {
	files, err := openFiles(c)
	if err != nil {
		return nil, err
	}
	defer unix.Close(files[len(files)-1])
	words := slices.Concat([]string{"start", "", strconv.FormatUint(m.value, 10), c.Path, strconv.Itoa(len(c.Args))}, c.Args, c.Env)
	for _, w := range words {
		if strings.IndexByte(w, 0) >= 0 {
			return nil, syscall.EINVAL
		}
	}
	k := l.add()
	words[1] = k.id
	l.send(files, words...) // an error is followed by the keeper's end
	runtime.KeepAlive(c.Files)
	return k, k.await(c.Path)
}

// openFiles returns the descriptors that a command gets, and last its
// directory's, which the caller closes.
func openFiles(c Command) ([]int, error) {
	var files []int
	for _, f := range c.Files {
		files = append(files, int(f.Fd()))
	}
	dir, err := unix.Open(c.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "chdir", Path: c.Dir, Err: err}
	}
	return append(files, dir), nil
}

func (l *link) add() *kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	k := &kept{link: l, id: strconv.Itoa(l.last), begun: make(chan error, 1), exited: make(chan struct{})}
	l.kept[k.id] = k
	return k
}

// kept is a first process that a keeper has started.
type kept struct {
	link   *link
	id     string
	begun  chan error // gets one value
	exited chan struct{}
	key    key // set by await

	pid    int                // once begun
	status syscall.WaitStatus // once exited
}

// report takes what the keeper says of the process; false when it makes no
// sense. The caller holds the link's lock.
func (k *kept) report(what string, number uint64) bool {
	switch {
	case what == "started" && k.pid == 0 && number != 0:
		k.pid = int(number)
		k.begun <- nil
		return true
	case what == "failed" && k.pid == 0:
		k.begun <- syscall.Errno(number)
	case what == "exited" && k.pid != 0:
		k.status = syscall.WaitStatus(number)
		close(k.exited)
	default:
		return false
	}
	delete(k.link.kept, k.id)
	return true
}

// await waits for the start.
func (k *kept) await(path string) error {
	late := time.AfterFunc(startPatience, func() { k.link.proc.Kill() })
	defer late.Stop()
	var err error
	select {
	case err = <-k.begun:
	case <-k.link.gone:
		select {
		case err = <-k.begun:
		default:
			if !k.link.wasReady() {
				return errNoKeeper // then it has read nothing
			}
			return ErrLost
		}
	}
	if err != nil {
		return &os.PathError{Op: "fork/exec", Path: path, Err: err}
	}
	k.key = key{pid: k.pid}
	// Else it has ended. It is here already if the keeper has, too.
	if p, ok := readProc(k.pid); ok && (p.ppid == k.link.proc.Pid || p.ppid == os.Getpid()) {
		k.key = p.key
	}
	return nil
}

// number implements first.
func (k *kept) number() int { return k.key.pid }

// kill implements first.
func (k *kept) kill() { k.key.send(syscall.SIGKILL) }

// wait implements first. Where the keeper has died the process has become this
// one's child, which it is to be waited for as long as it has its number.
func (k *kept) wait() (syscall.WaitStatus, error) {
	select {
	case <-k.exited:
		return k.status, nil
	case <-k.link.gone:
	}
	select {
	case <-k.exited:
		return k.status, nil
	default:
	}
	if p, ok := readProc(k.key.pid); !ok || p.key != k.key || p.ppid != os.Getpid() {
		return 0, ErrLost
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(k.key.pid, &status, 0, nil)
		if err != syscall.EINTR {
			return status, err
		}
	}
}
