package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// An AgentError is what the agent refused with. Kind is empty for an error of JSON-RPC itself.
type AgentError struct {
	Code         int
	Message      string
	Kind         string
	RetryAfterMs float64
	Holder       *Holder
}

// A Holder is the node that holds a store; members that nobody told are empty.
type Holder struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	Epoch   int64  `json:"epoch"`
	Since   string `json:"since"`
}

func (e *AgentError) Error() string { return e.Message }

// Retryable tells whether the same call may succeed later; for not_holder, at the holder, now.
func (e *AgentError) Retryable() bool {
	switch e.Kind {
	case "unavailable", "not_holder", "grace", "busy", "draining", "limit":
		return true
	}
	return false
}

// ErrGone says that the agent closed the connection: what it did last is not known.
var ErrGone = errors.New("the agent closed the connection")

type message struct {
	ID     *int64          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Kind         string  `json:"kind"`
			RetryAfterMs float64 `json:"retry_after_ms"`
			Holder       *Holder `json:"holder"`
		} `json:"data"`
	} `json:"error"`
}

type answer struct {
	message
	files []*os.File
}

// An Agent is a connection to the agent; calls may come from many goroutines.
type Agent struct {
	lines   *Lines
	mu      sync.Mutex
	lastID  int64
	waiting map[int64]chan answer
	grants  map[string]*Grant
	early   map[string][]message
	closed  bool
}

// Connect connects to the agent.
func Connect(path string) (*Agent, error) {
	lines, err := Dial(path)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		lines:   lines,
		waiting: map[int64]chan answer{},
		grants:  map[string]*Grant{},
		early:   map[string][]message{},
	}
	go a.read()
	return a, nil
}

// Call asks and decodes the result into `result`, unless that is nil.
func (a *Agent) Call(method string, params, result any) error {
	_, err := a.call(method, params, result)
	return err
}

func (a *Agent) call(method string, params, result any) ([]*os.File, error) {
	reply := make(chan answer, 1)
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, ErrGone
	}
	a.lastID++
	id := a.lastID
	a.waiting[id] = reply
	request := map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}
	text, err := json.Marshal(request)
	if err == nil {
		err = a.lines.Send(append(text, '\n'))
	}
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	got, open := <-reply
	if !open {
		return nil, ErrGone
	}
	if e := got.Error; e != nil {
		return nil, &AgentError{e.Code, e.Message, e.Data.Kind, e.Data.RetryAfterMs, e.Data.Holder}
	}
	if result != nil {
		err = json.Unmarshal(got.Result, result)
	}
	return got.files, err
}

func (a *Agent) read() {
	for {
		line, err := a.lines.Next(0)
		var m message
		if err == nil {
			err = json.Unmarshal(line.Text, &m)
		}
		if err != nil {
			a.end()
			return
		}
		a.take(m, line.Files)
	}
}

func (a *Agent) take(m message, files []*os.File) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Method == "" {
		if m.ID != nil && a.waiting[*m.ID] != nil {
			a.waiting[*m.ID] <- answer{m, files}
			delete(a.waiting, *m.ID)
		}
		return
	}
	var params struct {
		Token string `json:"token"`
	}
	if json.Unmarshal(m.Params, &params) != nil || params.Token == "" {
		return
	}
	if grant := a.grants[params.Token]; grant != nil {
		grant.notified(m)
	} else {
		// Right behind the answer, before whoever asked has got that.
		a.early[params.Token] = append(a.early[params.Token], m)
	}
}

func (a *Agent) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, reply := range a.waiting {
		close(reply)
	}
	for _, grant := range a.grants {
		grant.stop(ErrGone)
	}
}

// Close ends the connection, and what was granted on it.
func (a *Agent) Close() error { return a.lines.Close() }

// A Grant is the permission to write to a store. Its context ends when the write must not go on.
type Grant struct {
	Token          string  `json:"token"`
	Store          string  `json:"store"`
	Epoch          int64   `json:"epoch"`
	Node           string  `json:"node"`
	RemainingMs    float64 `json:"remaining_ms"`
	DeadlineBootMs float64 `json:"deadline_boot_ms"`
	LockPath       string  `json:"lock_path"`
	// Lock is the locked descriptor, where it was asked for.
	Lock    *os.File        `json:"-"`
	Context context.Context `json:"-"`

	agent    *Agent
	mu       sync.Mutex
	deadline time.Time
	timer    *time.Timer
	cancel   context.CancelFunc
	reason   error
}

// Guard runs `write` while this node may write to the store. `params` are those of the protocol; with
// "pass_lock" the lock is held until `write` has returned, whatever becomes of the agent.
func (a *Agent) Guard(params map[string]any, write func(*Grant) error) error {
	asked := map[string]any{"follow": true}
	for name, value := range params {
		asked[name] = value
	}
	grant := &Grant{agent: a}
	files, err := a.call("guard", asked, grant)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		grant.Lock = files[0]
		defer grant.Lock.Close()
	}
	grant.begin()
	err = write(grant)
	a.mu.Lock()
	delete(a.grants, grant.Token)
	a.mu.Unlock()
	grant.stop(context.Canceled)
	released := a.Call("release", map[string]any{"token": grant.Token}, nil)
	if err != nil {
		return err
	}
	return released
}

func (g *Grant) begin() {
	g.Context, g.cancel = context.WithCancel(context.Background())
	g.setDeadline(time.Now().Add(milliseconds(g.RemainingMs)))
	a := g.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grants[g.Token] = g
	for _, m := range a.early[g.Token] {
		g.notified(m)
	}
	delete(a.early, g.Token)
	if a.closed {
		g.stop(ErrGone)
	}
}

// Verify is the commit-point check, right before the write becomes visible.
func (g *Grant) Verify() error {
	sent := time.Now()
	var result struct {
		RemainingMs float64 `json:"remaining_ms"`
	}
	err := g.agent.Call("verify", map[string]any{"token": g.Token, "store": g.Store}, &result)
	if err != nil {
		return err
	}
	deadline := sent.Add(milliseconds(result.RemainingMs))
	g.setDeadline(deadline)
	if err := g.Err(); err != nil {
		return err
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("the lease of %s ran out", g.Store)
	}
	return nil
}

// Err says why the write must not go on; nil if it may.
func (g *Grant) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

func (g *Grant) notified(m message) {
	var params struct {
		DeadlineBootMs float64 `json:"deadline_boot_ms"`
		Message        string  `json:"message"`
	}
	if json.Unmarshal(m.Params, &params) != nil {
		return
	}
	switch m.Method {
	case "renewed":
		// By how much it moved on, on the agent's clock.
		moved := milliseconds(params.DeadlineBootMs - g.DeadlineBootMs)
		g.DeadlineBootMs = params.DeadlineBootMs
		g.mu.Lock()
		deadline := g.deadline.Add(moved)
		g.mu.Unlock()
		g.setDeadline(deadline)
	case "expiring":
		g.stop(fmt.Errorf("the lease of %s runs out unrenewed", g.Store))
	case "lost":
		g.stop(errors.New(params.Message))
	}
}

// The grant ends at its deadline, also when the agent says nothing any more. Go's clock stands still
// while the machine is suspended: after that it is Verify that tells.
func (g *Grant) setDeadline(deadline time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = deadline
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(time.Until(deadline), func() {
		g.stop(fmt.Errorf("the lease of %s ran out", g.Store))
	})
}

func (g *Grant) stop(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil {
		g.reason = reason
		g.cancel()
	}
	g.timer.Stop()
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
