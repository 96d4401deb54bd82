package work_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

// start runs f as a task.
func start(tasks *work.Tasks, terms work.Terms, f func(context.Context)) *work.Task {
	t := tasks.New(terms)
	go t.Run(f)
	return t
}

func TestTaskWithoutGraceEndsWithItsLast(t *testing.T) {
	var tasks work.Tasks
	defer tasks.Close(errors.New("closed"))
	task := start(&tasks, work.Terms{}, func(ctx context.Context) { <-ctx.Done() })
	task.Join()
	task.Leave()
	select {
	case <-task.Done():
		t.Fatal("ended while somebody waits")
	default:
	}
	task.Leave()
	<-task.Done()
}

func TestTaskGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks work.Tasks
		defer tasks.Close(errors.New("closed"))
		task := start(&tasks, work.Terms{Grace: 30 * time.Second}, func(ctx context.Context) { <-ctx.Done() })
		begun := time.Now()
		for range 3 { // whoever comes back renews it
			task.Leave()
			time.Sleep(29 * time.Second)
			task.Join()
			time.Sleep(time.Minute)
		}
		task.Leave()
		<-task.Done()
		if d := time.Since(begun); d != 3*89*time.Second+30*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// TestTaskGraceIsWhole: a timer of an earlier leave does not cut a later one.
func TestTaskGraceIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks work.Tasks
		defer tasks.Close(errors.New("closed"))
		task := start(&tasks, work.Terms{Grace: 30 * time.Second}, func(ctx context.Context) { <-ctx.Done() })
		task.Leave()
		time.Sleep(20 * time.Second)
		task.Join()
		task.Leave()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		select {
		case <-task.Done():
			t.Fatal("ended early")
		default:
		}
		<-task.Done()
	})
}

func TestTaskDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks work.Tasks
		task := start(&tasks, work.Terms{Grace: time.Second, Detach: true}, func(ctx context.Context) { <-ctx.Done() })
		task.Leave()
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		select {
		case <-task.Done():
			t.Fatal("ended")
		default:
		}
		closed := errors.New("closed")
		tasks.Close(closed)
		<-task.Done()
		late := start(&tasks, work.Terms{}, func(context.Context) { t.Error("runs behind Close") })
		<-late.Done()
	})
}

// TestCloseWaits for the end of what it cancels.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks work.Tasks
		ended := false
		start(&tasks, work.Terms{Detach: true}, func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		})
		tasks.Close(errors.New("closed"))
		if !ended {
			t.Error("it did not")
		}
	})
}

func TestExecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks work.Tasks
		defer tasks.Close(errors.New("closed"))
		x := work.NewExecs(work.ExecsConfig{MaxKept: 2})
		owner := work.Owner{Tenant: "acme", Sandbox: "box"}
		step := make(chan struct{})
		run := func(_ context.Context, begun func()) (sandbox.ShellResult, error) {
			<-step
			begun()
			<-step
			return sandbox.ShellResult{ExitCode: 3, Stdout: []byte("out")}, nil
		}
		e := x.Register(owner, tasks.New(work.Terms{}))
		go e.Run(run)
		state := func() work.State { synctest.Wait(); return e.Report().State }
		if s := state(); s != work.Starting {
			t.Errorf("state %s", s)
		}
		step <- struct{}{}
		if s := state(); s != work.Running || x.Find(owner, e.ID) != e || len(x.List(owner)) != 1 {
			t.Errorf("state %s", s)
		}
		if x.Find(work.Owner{Tenant: "acme", Sandbox: "other"}, e.ID) != nil || len(x.List(work.Owner{Tenant: "other", Sandbox: "box"})) != 0 {
			t.Error("others see it")
		}
		step <- struct{}{}
		<-e.Done()
		r := e.Report()
		if r.State != work.Ended || r.Result.ExitCode != 3 || r.Result.Stdout != nil {
			t.Errorf("%+v", r)
		}
		quick := func(context.Context, func()) (sandbox.ShellResult, error) { return sandbox.ShellResult{}, nil }
		for range 2 {
			x.Register(owner, tasks.New(work.Terms{})).Run(quick)
		}
		if x.Find(owner, e.ID) != nil || len(x.List(owner)) != 2 {
			t.Errorf("%d are kept", len(x.List(owner)))
		}
		time.Sleep(10*time.Minute + 1)
		if n := len(x.List(owner)); n != 0 {
			t.Errorf("%d are kept too long", n)
		}
	})
}
