//go:build linux

package proctree

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// Whom the kernel kills when memory runs out is decided by scores, see
// oom_score_adj in proc(5). A command's is this much above this process's own,
// so that it is the command, up to the most that there is.
const (
	scoreAbove = 500
	scoreMost  = 1000
)

// ownScore is this process's adjustment, which its children inherit.
var ownScore = sync.OnceValue(openScore)

// HoldScore opens what a process that hides can open no more.
func HoldScore() { ownScore() }

// score bears the commands' adjustment while any is born: it cannot be set
// between fork and exec, and what a command starts before it is set later would
// not have it. In that moment this process and its commands are alike, and what
// they use decides.
type score struct {
	file *os.File // nil where there is none

	mu     sync.Mutex
	births int
	own    int
	set    bool
}

func openScore() *score {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return &score{}
	}
	return &score{file: f}
}

// bear calls start while this process's adjustment is a command's.
func (s *score) bear(start func() (*os.Process, error)) (*os.Process, error) {
	if s.file == nil {
		return start()
	}
	s.raise()
	defer s.restore()
	return start()
}

func (s *score) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.births++; s.births > 1 {
		return
	}
	var err error
	if s.own, err = s.read(); err == nil {
		s.set = s.write(min(s.own+scoreAbove, scoreMost)) == nil
	}
}

// restore ends what raise began. Nobody needs a right to lower what he has
// raised.
func (s *score) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.births--; s.births == 0 && s.set {
		s.write(s.own)
		s.set = false
	}
}

func (s *score) read() (int, error) {
	var text [16]byte
	n, err := s.file.ReadAt(text[:], 0)
	if n == 0 {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text[:n])))
}

func (s *score) write(value int) error {
	_, err := s.file.WriteAt([]byte(strconv.Itoa(value)), 0)
	return err
}
