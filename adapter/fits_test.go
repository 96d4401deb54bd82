package adapter

import (
	"net"
	"testing"
	"time"

	"github.com/controld/controld/dataport"
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
		"young":      {ahead{here, at, time.Now()}, []dataport.Endpoint{at, other}, true},
		"old":        {ahead{here, at, time.Now().Add(-aheadLife)}, []dataport.Endpoint{at}, false},
		"elsewhere":  {ahead{here, at, time.Now()}, []dataport.Endpoint{other, at}, false},
		"nowhere":    {ahead{here, at, time.Now()}, nil, false},
		"none there": {ahead{nil, at, time.Now()}, []dataport.Endpoint{at}, false},
	} {
		if got := tt.a.fits(tt.endpoints); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
