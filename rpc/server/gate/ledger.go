package gate

import "time"

// What a ledger remembers at most: sources, and neighbourhoods of those that
// found no room.
const (
	mostSources        = 8192
	mostNeighbourhoods = 2048
)

// firstWait is how long a source is kept out the first time; it doubles with
// each time after.
const firstWait = time.Second

// forgetAfter is how many windows without a failure it takes until a source is
// as good as new.
const forgetAfter = 10

// ledger remembers the failures of sources. Nothing that still counts is
// dropped to make room: a source that finds none is counted to its
// neighbourhood, so that a flood of sources buys no forgetting of others.
type ledger struct {
	sources, neighbourhoods book
}

// book is a bounded map of accounts.
type book struct {
	accounts map[Source]*account
	swept    time.Time
}

// account is what is remembered of one source.
type account struct {
	// level is how many failures count at a time, in which they drain away
	// evenly over a window.
	level float64
	at    time.Time
	// strikes is how often the source was kept out, until when it is now.
	strikes uint
	until   time.Time
}

// failed counts a failure; over most in a window the source is kept out.
func (l *ledger) failed(s Source, now time.Time, most float64, window, longest time.Duration) {
	a := l.sources.open(s, now, window, mostSources)
	if a == nil {
		a = l.neighbourhoods.open(s.around(), now, window, mostNeighbourhoods)
	}
	if a == nil {
		return
	}
	if now.Sub(a.at) > forgetAfter*window {
		*a = account{at: now}
	}
	drained := most * now.Sub(a.at).Seconds() / window.Seconds()
	a.level = min(max(0, a.level-drained), most) + 1
	a.at = now
	if a.level <= most || now.Before(a.until) {
		return
	}
	a.until = now.Add(min(firstWait<<min(a.strikes, 20), longest))
	a.strikes++
}

// wait returns how long a source is kept out. It is judged by its own account
// where it has one.
func (l *ledger) wait(s Source, now time.Time) time.Duration {
	a := l.sources.accounts[s]
	if a == nil {
		a = l.neighbourhoods.accounts[s.around()]
	}
	if a == nil {
		return 0
	}
	return max(0, a.until.Sub(now))
}

// open returns the account of a source, a new one where there is room.
func (b *book) open(s Source, now time.Time, window time.Duration, most int) *account {
	if a := b.accounts[s]; a != nil {
		return a
	}
	if b.accounts == nil {
		b.accounts = make(map[Source]*account)
	}
	if len(b.accounts) >= most {
		b.sweep(now, window)
	}
	if len(b.accounts) >= most {
		return nil
	}
	a := &account{at: now}
	b.accounts[s] = a
	return a
}

// sweep drops the accounts that count no more, once a second at most.
func (b *book) sweep(now time.Time, window time.Duration) {
	if now.Sub(b.swept) < time.Second {
		return
	}
	b.swept = now
	for s, a := range b.accounts {
		quiet := now.Sub(a.at)
		if quiet > forgetAfter*window || quiet > window && a.strikes == 0 {
			delete(b.accounts, s)
		}
	}
}
