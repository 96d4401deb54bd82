package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a process of this host, a child or not, held by a descriptor: it
// is never another one that took its number. The caller closes it.
type Process struct {
	pid int
	fd  *os.File
}

// ErrEnded is what is said of a process that has ended.
var ErrEnded = errors.New("the process has ended")

// Hold takes hold of a process.
func Hold(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, ErrEnded
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return &Process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// PID is its number, which is only its own while it has not been reaped.
func (p *Process) PID() int { return p.pid }

// Close lets go of the process, which lives on.
func (p *Process) Close() error { return p.fd.Close() }

// Wait returns when the process has ended, or its descriptor was closed. It
// holds no thread.
func (p *Process) Wait() error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(hasEnded)
}

// hasEnded tells whether a process is one no more, or a zombie.
func hasEnded(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Kill ends the process, and with the first of a pid namespace all in it. That
// it has ended already is no error.
func (p *Process) Kill() error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// recordName is the file in which a process is written down.
const recordName = "process"

// Record writes a process down in the directory of its instance, so that
// [Recorded] finds it again.
func (p *Process) Record(dir string) error {
	born, err := bornAt(p.pid)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, recordName+".new")
	if err := os.WriteFile(temp, fmt.Appendf(nil, "%d %d\n", p.pid, born), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, recordName))
}

// Recorded takes hold of the process that was written down in a directory. It
// is [ErrEnded] where that has ended, and fs.ErrNotExist where none was.
func Recorded(dir string) (*Process, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, err
	}
	var pid int
	var born uint64
	if _, err := fmt.Sscan(string(text), &pid, &born); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, recordName), err)
	}
	p, err := Hold(pid)
	if err != nil {
		return nil, err
	}
	if now, err := bornAt(pid); err != nil || now != born {
		p.Close()
		return nil, ErrEnded
	}
	return p, nil
}

// bornAt is when a process began, in ticks since the machine did: field 22 of
// /proc/PID/stat, see proc(5).
func bornAt(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, ErrEnded
	}
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// End kills the processes with that word among their arguments and waits for
// their end. A word that nobody else knows finds those of an instance that was
// not yet written down when its host died.
func End(word string) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if hasArgument(pid, word) {
			errs = append(errs, endNamed(pid, word))
		}
	}
	return errors.Join(errs...)
}

// endNamed ends one of them, unless its number is another's by now.
func endNamed(pid int, word string) error {
	p, err := Hold(pid)
	if errors.Is(err, ErrEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	if !hasArgument(pid, word) {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Wait()
}

func hasArgument(pid int, word string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	for argument := range bytes.SplitSeq(line, []byte{0}) {
		if string(argument) == word {
			return true
		}
	}
	return false
}
