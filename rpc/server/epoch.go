package server

import "sync"

// epochs watches the ends of sandboxes' lives: one goroutine for each, however
// many connections it has.
type epochs struct {
	mu  sync.Mutex
	by  map[<-chan struct{}]*watch
	all sync.WaitGroup
}

type watch struct {
	members map[int]func()
	next    int
	stop    chan struct{}
}

// join has ended called once closed is closed. It returns how to leave, which
// does not wait for a call of ended that has begun.
func (e *epochs) join(closed <-chan struct{}, ended func()) (leave func()) {
	if closed == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = make(map[<-chan struct{}]*watch)
	}
	w := e.by[closed]
	if w == nil {
		w = &watch{members: make(map[int]func()), stop: make(chan struct{})}
		e.by[closed] = w
		e.all.Add(1)
		go e.run(closed, w)
	}
	key := w.next
	w.next++
	w.members[key] = ended
	return func() { e.leave(closed, w, key) }
}

func (e *epochs) leave(closed <-chan struct{}, w *watch, key int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, in := w.members[key]; !in {
		return
	}
	delete(w.members, key)
	if len(w.members) == 0 && e.by[closed] == w {
		delete(e.by, closed)
		close(w.stop)
	}
}

func (e *epochs) run(closed <-chan struct{}, w *watch) {
	defer e.all.Done()
	select {
	case <-w.stop:
		return
	case <-closed:
	}
	e.mu.Lock()
	if e.by[closed] == w {
		delete(e.by, closed)
	}
	members := w.members
	w.members = nil
	e.mu.Unlock()
	for _, ended := range members {
		ended()
	}
}

func (e *epochs) wait() { e.all.Wait() }
