package gate

import "slices"

// Place is that of a stranger who was let in.
type Place struct {
	g      *Gate
	h      *holder // nil when it was given up
	putOut func()
}

// holder is a source that has strangers inside, the oldest first.
type holder struct {
	source Source
	places []*Place
}

// crowd holds the strangers who are in. Those of the same number are in a set,
// so that whoever has most is found at once.
type crowd struct {
	total   int
	holders map[Source]*holder
	// having[n] are the holders of n places; the last is not empty.
	having []map[*holder]struct{}
}

// Enter lets a stranger in; false keeps it out. Over the bound of its source
// that is itself. Over the bound of all it is the newest of the source that
// has most, which may be this one; another is put out instead by its putOut,
// which is called once, at any time before Leave. Where several have most, one
// of them is hit at random.
func (g *Gate) Enter(s Source, putOut func()) (*Place, bool) {
	g.mu.Lock()
	h := g.crowd.holders[s]
	has := 0
	if h != nil {
		has = len(h.places)
	}
	if each := g.limits.StrangersEach; each > 0 && has >= each {
		g.mu.Unlock()
		g.crowded.Add(1)
		return nil, false
	}
	var out *Place
	if most := g.limits.Strangers; most > 0 && g.crowd.total >= most {
		if out = g.crowd.newestOfMost(has); out == nil {
			g.mu.Unlock()
			g.crowded.Add(1)
			return nil, false
		}
		g.crowd.remove(out)
	}
	p := &Place{g: g, putOut: putOut}
	g.crowd.add(s, p)
	g.mu.Unlock()
	if out != nil {
		g.crowded.Add(1)
		out.putOut()
	}
	return p, true
}

// Leave gives the place up: its stranger is gone or none any more. It may be
// called twice, and of nil.
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.g.crowd.remove(p)
}

// newestOfMost returns who makes room for one more of a source that has some
// places already: nobody where that source has as many as any.
func (c *crowd) newestOfMost(has int) *Place {
	most := len(c.having) - 1
	if has > 0 && has >= most {
		return nil
	}
	for h := range c.having[most] { // in no order
		return h.places[most-1]
	}
	return nil
}

func (c *crowd) add(s Source, p *Place) {
	h := c.holders[s]
	if h == nil {
		h = &holder{source: s}
		c.holders[s] = h
	}
	c.move(h, append(h.places, p))
	p.h = h
	c.total++
}

func (c *crowd) remove(p *Place) {
	h := p.h
	if h == nil {
		return
	}
	p.h = nil
	c.total--
	i := slices.Index(h.places, p)
	c.move(h, slices.Delete(h.places, i, i+1))
	if len(h.places) == 0 {
		delete(c.holders, h.source)
	}
}

// move gives a holder other places, and its place among the sets.
func (c *crowd) move(h *holder, places []*Place) {
	if old := len(h.places); old > 0 {
		delete(c.having[old], h)
	}
	h.places = places
	n := len(places)
	for len(c.having) <= n {
		c.having = append(c.having, nil)
	}
	if n > 0 {
		if c.having[n] == nil {
			c.having[n] = make(map[*holder]struct{})
		}
		c.having[n][h] = struct{}{}
	}
	for last := len(c.having) - 1; last > 0 && len(c.having[last]) == 0; last-- {
		c.having = c.having[:last]
	}
}
