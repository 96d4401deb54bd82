package work

import "time"

// answers are the calls of a tenant that have ended and whose answers are
// kept, the small and the big ones apart, the oldest first.
type answers struct {
	small, big []*Call
	bytes      int64
	timer      *time.Timer // of the oldest
}

// smallAnswer is the size in bytes up to which an answer is small: as many as
// may be kept come to less than may be kept, so that none of them has to go
// for a big one.
const smallAnswer = 4 << 10

func (a *answers) add(c *Call) {
	a.bytes += c.size
	if c.size <= smallAnswer {
		a.small = append(a.small, c)
	} else {
		a.big = append(a.big, c)
	}
}

// over takes an answer out that has to go: of too many bytes the oldest big
// one, of too many answers the oldest. It is nil when none has to.
func (a *answers) over(cfg *KeysConfig) *Call {
	switch {
	case a.bytes > cfg.MaxAnswerBytes && len(a.big) > 0:
		return a.take(&a.big)
	case a.bytes > cfg.MaxAnswerBytes || len(a.small)+len(a.big) > cfg.MaxAnswers:
		return a.takeOldest()
	}
	return nil
}

// takeOldest takes the oldest answer out.
func (a *answers) takeOldest() *Call {
	if oldest := a.oldest(); len(a.big) > 0 && a.big[0] == oldest {
		return a.take(&a.big)
	}
	return a.take(&a.small)
}

func (a *answers) take(from *[]*Call) *Call {
	c := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	a.bytes -= c.size
	return c
}

// oldest is the answer that goes first by its age, nil where there is none.
func (a *answers) oldest() *Call {
	switch {
	case len(a.small) == 0 && len(a.big) == 0:
		return nil
	case len(a.small) == 0 || len(a.big) > 0 && a.big[0].ended.Before(a.small[0].ended):
		return a.big[0]
	}
	return a.small[0]
}
