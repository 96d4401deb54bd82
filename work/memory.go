package work

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// memory remembers the bare keys of a tenant, by a hash each, on pages. A page
// is a file as well: what was written to it outlives the process, though not
// the machine, so nothing is synced. Old pages go as a whole.
type memory struct {
	dir   string // nothing is written where empty
	keep  time.Duration
	most  int
	pages []*page // oldest first
}

// page holds the keys of a part of the time.
type page struct {
	begun time.Time
	seen  map[mark]struct{}
	file  *os.File // of the page that is written
	size  int64
	path  string
}

// mark stands for a key of a sandbox. Two are the same by chance once in
// 10^13 keys of a full memory, and then one call too many is refused.
type mark uint64

const (
	markSize   = 8
	pageSuffix = ".keys"
	// pagesOf is into how many pages the time of remembering is cut.
	pagesOf = 4
)

func markOf(sandbox, key string) mark {
	var text [128]byte
	sum := sha256.Sum256(append(append(append(text[:0], sandbox...), '/'), key...))
	return mark(binary.LittleEndian.Uint64(sum[:]))
}

// errFull is what add returns when no more keys can be remembered.
var errFull = errors.New("too many request keys are remembered")

func (m *memory) has(k mark, now time.Time) bool {
	m.forget(now)
	for i := len(m.pages) - 1; i >= 0; i-- {
		if _, ok := m.pages[i].seen[k]; ok {
			return true
		}
	}
	return false
}

// place is where a key stands.
type place struct {
	page *page
	at   int64
}

// add remembers a key, and returns when it is written.
func (m *memory) add(k mark, now time.Time) (place, error) {
	if err := m.turn(now); err != nil {
		return place{}, err
	}
	n := 0
	for _, p := range m.pages {
		n += len(p.seen)
	}
	if n >= m.most {
		return place{}, errFull
	}
	p := m.pages[len(m.pages)-1]
	at := p.size
	if p.file != nil {
		var b [markSize]byte
		binary.LittleEndian.PutUint64(b[:], uint64(k))
		// At its own place, so that one which fails half-way shifts nothing.
		if _, err := p.file.WriteAt(b[:], p.size); err != nil {
			return place{}, err
		}
		p.size += markSize
	}
	p.seen[k] = struct{}{}
	return place{p, at}, nil
}

// remove forgets a key again. One that cannot be taken off its page stays.
func (m *memory) remove(k mark, from place) {
	if m.dir != "" {
		if from.page.file == nil { // another page is written by now
			return
		}
		if _, err := from.page.file.WriteAt(make([]byte, markSize), from.at); err != nil {
			return
		}
	}
	delete(from.page.seen, k)
}

// forget drops the pages that are too old.
func (m *memory) forget(now time.Time) {
	for len(m.pages) > 0 && m.outlived(m.pages[0].begun, now) {
		m.pages[0].drop()
		m.pages = m.pages[1:]
	}
}

// turn begins another page where it is time.
func (m *memory) turn(now time.Time) error {
	if n := len(m.pages); n > 0 && now.Sub(m.pages[n-1].begun) < m.keep/pagesOf {
		return nil
	}
	p := &page{begun: now, seen: make(map[mark]struct{})}
	if m.dir != "" {
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return err
		}
		p.path = filepath.Join(m.dir, strconv.FormatInt(now.UnixNano(), 10)+pageSuffix)
		if err := p.open(os.O_CREATE | os.O_EXCL); err != nil {
			return err
		}
	}
	if n := len(m.pages); n > 0 {
		m.pages[n-1].close()
	}
	m.pages = append(m.pages, p)
	return nil
}

// outlived tells whether all keys of a page that was begun then may go.
func (m *memory) outlived(begun, now time.Time) bool {
	return now.Sub(begun) > m.keep+m.keep/pagesOf
}

// roomIn is how long it takes until the oldest page goes.
func (m *memory) roomIn(now time.Time) time.Duration {
	if len(m.pages) == 0 {
		return time.Second
	}
	return max(m.keep+m.keep/pagesOf-now.Sub(m.pages[0].begun), time.Second)
}

// load reads what an earlier process wrote.
func (m *memory) load(now time.Time) error {
	if m.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(m.dir) // sorted by name, which is by time
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		begun, ok := pageTime(e.Name())
		if !ok {
			continue
		}
		p := &page{begun: begun, path: filepath.Join(m.dir, e.Name())}
		if err := p.read(); err != nil {
			return err
		}
		m.pages = append(m.pages, p)
	}
	if n := len(m.pages); n > 0 {
		return m.pages[n-1].open(0)
	}
	return nil
}

// pageTime reads when a page was begun off its name.
func pageTime(name string) (time.Time, bool) {
	digits, ok := strings.CutSuffix(name, pageSuffix)
	nanos, err := strconv.ParseInt(digits, 10, 64)
	return time.Unix(0, nanos), ok && err == nil
}

// read takes the keys of a page from its file; half a key at its end is one
// that was never answered for.
func (p *page) read() error {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	p.seen = make(map[mark]struct{}, len(text)/markSize)
	for ; len(text) >= markSize; text = text[markSize:] {
		if k := mark(binary.LittleEndian.Uint64(text)); k != 0 { // 0: removed
			p.seen[k] = struct{}{}
		}
		p.size += markSize
	}
	return nil
}

func (p *page) open(how int) (err error) {
	p.file, err = os.OpenFile(p.path, os.O_WRONLY|how, 0o600)
	return err
}

func (p *page) close() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

func (p *page) drop() {
	p.close()
	if p.path != "" {
		os.Remove(p.path)
	}
}

func (m *memory) close() {
	for _, p := range m.pages {
		p.close()
	}
}

// sweepPages removes what tenants that never came back have left in the
// directories below dir.
func sweepPages(dir string, keep time.Duration, now time.Time) error {
	tenants, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	m := memory{keep: keep}
	for _, tenant := range tenants {
		pages, err := os.ReadDir(filepath.Join(dir, tenant.Name()))
		if err != nil {
			return err
		}
		for _, e := range pages {
			if begun, ok := pageTime(e.Name()); ok && m.outlived(begun, now) {
				os.Remove(filepath.Join(dir, tenant.Name(), e.Name()))
			}
		}
	}
	return nil
}
