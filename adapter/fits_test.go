package adapter

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// TestFits: a connection that was dialled ahead is used only where it leads to
// the right place and before the server may have closed it.
func TestFits(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	at := dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: "127.0.0.1", Port: 1}
	other := at
	other.Port = 2
	for name, tt := range map[string]struct {
		a         ahead
		endpoints []dataport.Endpoint
		want      bool
	}{
		"young":      {ahead{here, nil, at, time.Now()}, []dataport.Endpoint{at, other}, true},
		"old":        {ahead{here, nil, at, time.Now().Add(-aheadLife)}, []dataport.Endpoint{at}, false},
		"elsewhere":  {ahead{here, nil, at, time.Now()}, []dataport.Endpoint{other, at}, false},
		"nowhere":    {ahead{here, nil, at, time.Now()}, nil, false},
		"none there": {ahead{nil, nil, at, time.Now()}, []dataport.Endpoint{at}, false},
	} {
		if got := tt.a.fits(tt.endpoints); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHung: a dial that failed at once is tried again, one that hung is not.
func TestHung(t *testing.T) {
	at := dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: "127.0.0.1", Port: 1}
	other := at
	other.Port = 2
	long := time.Now().Add(-aheadLife)
	for name, tt := range map[string]struct {
		a    ahead
		e    dataport.Endpoint
		want bool
	}{
		"hung":            {ahead{nil, net.ErrClosed, at, long}, at, true},
		"failed at once":  {ahead{nil, net.ErrClosed, at, time.Now()}, at, false},
		"another":         {ahead{nil, net.ErrClosed, at, long}, other, false},
		"was not dialled": {ahead{nil, nil, at, long}, at, false},
	} {
		if got := tt.a.hung(tt.e); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestJudged: a verdict on a whole stream may take long, for it is on its way;
// but neither that nor any other is waited for without end.
func TestJudged(t *testing.T) {
	for name, tt := range map[string]struct {
		sent int64
		want time.Duration
	}{"whole": {5, judgement + patience}, "broken": {4, patience}} {
		synctest.Test(t, func(t *testing.T) {
			s := source{ctx: t.Context(), length: sandbox.Some(int64(5)), verdict: &verdict{done: make(chan struct{})}}
			begun := time.Now()
			if s.judged(tt.sent) || time.Since(begun) != tt.want {
				t.Errorf("%s: %v", name, time.Since(begun))
			}
		})
	}
}
