//go:build linux

package local

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/controld/controld/sandbox"
	"golang.org/x/sys/unix"
)

const (
	opList = "readdir"
	// listBatch is how many names are read between two looks at the context.
	listBatch = 4096
	// listOverhead is what a reply has beside the names.
	listOverhead = 256
)

// ReadDir implements sandbox.API.
func (s *Sandbox) ReadDir(ctx context.Context, path string, opts sandbox.ReadDirOptions) (sandbox.Listing, error) {
	if opts.Limit < 0 {
		return sandbox.Listing{}, invalid(opList, path, "negative limit")
	}
	place, err := s.locate(ctx, opList, opts.Scope, path)
	if err != nil {
		return sandbox.Listing{}, err
	}
	defer place.Close()
	at, err := place.OpenDir()
	if err != nil {
		return sandbox.Listing{}, fail(opList, path, err)
	}
	defer unix.Close(at)
	fd, err := openAt(at, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return sandbox.Listing{}, fail(opList, path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	page := page{temps: &s.temps, limit: opts.Limit, room: s.opts.Limits.MaxMessageBytes - listOverhead}
	if err := page.read(ctx, dir, opts.After); err != nil {
		if err == errNoRoom {
			return sandbox.Listing{}, tooLarge(opList, path, s.opts.Limits.MaxMessageBytes)
		}
		return sandbox.Listing{}, fail(opList, path, err)
	}
	slices.Sort(page.names)
	return sandbox.Listing{Names: page.names, More: page.more}, nil
}

// page holds the names of a listing; with a limit the smallest, as a heap
// with the largest on top, so that memory does not grow with the directory.
type page struct {
	temps *sync.Map // names that are no files yet
	limit int
	room  int64
	names nameHeap
	more  bool
}

func (p *page) isTemp(name string) bool {
	if !strings.HasPrefix(name, tempPrefix) {
		return false
	}
	_, is := p.temps.Load(name)
	return is
}

// errNoRoom is a listing that no reply can hold.
var errNoRoom = errors.New("too many names")

func (p *page) read(ctx context.Context, dir *os.File, after string) error {
	for {
		names, err := dir.Readdirnames(listBatch)
		for _, name := range names {
			if after != "" && name <= after || p.isTemp(name) {
				continue
			}
			if err := p.add(name); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (p *page) add(name string) error {
	p.room -= encodedLen(name)
	if p.limit == 0 {
		if p.room < 0 {
			return errNoRoom
		}
		p.names = append(p.names, name)
		return nil
	}
	heap.Push(&p.names, name)
	for len(p.names) > p.limit || p.room < 0 && len(p.names) > 1 {
		p.room += encodedLen(heap.Pop(&p.names).(string))
		p.more = true
	}
	return nil
}

// encodedLen is what a name takes in a reply, at most.
func encodedLen(name string) int64 {
	if !utf8.ValidString(name) {
		return int64(len(name)+2)/3*4 + 16
	}
	n := int64(3)
	for i := range len(name) {
		switch c := name[i]; {
		case c < ' ':
			n += 6
		case c == '"' || c == '\\':
			n += 2
		default:
			n++
		}
	}
	return n
}

// nameHeap is a heap with the largest name on top.
type nameHeap []string

func (h nameHeap) Len() int           { return len(h) }
func (h nameHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h nameHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *nameHeap) Push(x any)        { *h = append(*h, x.(string)) }
func (h *nameHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
