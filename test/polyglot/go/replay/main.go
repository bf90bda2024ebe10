// Command replay replays exchanges with an agent: replay VARIABLES.json EXCHANGE.json…
// The format is described in ../../README.md.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"time"

	"polyglot/client"
)

const timeout = 60 * time.Second

var signals = map[string]syscall.Signal{
	"SIGSTOP": syscall.SIGSTOP,
	"SIGCONT": syscall.SIGCONT,
	"SIGKILL": syscall.SIGKILL,
}

var variable = regexp.MustCompile(`\$(\w+)`)

type step = map[string]any

type received struct {
	message any
	files   []*os.File
}

type exchange struct {
	socket      string
	variables   map[string]any
	connections map[string]*client.Lines
	unread      map[string][]received
	descriptors map[string]*os.File
}

// fill gives a value with the variables put in.
func (x *exchange) fill(value any) any {
	switch v := value.(type) {
	case string:
		if strings.HasPrefix(v, "$") {
			return x.variables[v[1:]]
		}
	case []any:
		filled := make([]any, len(v))
		for i := range v {
			filled[i] = x.fill(v[i])
		}
		return filled
	case map[string]any:
		filled := map[string]any{}
		for name, each := range v {
			filled[x.fill(name).(string)] = x.fill(each)
		}
		return filled
	}
	return value
}

func matches(pattern, value any) bool {
	switch p := pattern.(type) {
	case string:
		switch p {
		case "<any>":
			return true
		case "<string>":
			_, is := value.(string)
			return is
		case "<number>":
			_, is := value.(float64)
			return is
		case "<boolean>":
			_, is := value.(bool)
			return is
		}
	case map[string]any:
		object, is := value.(map[string]any)
		if !is {
			return false
		}
		for name, each := range p {
			member, has := object[name]
			if !has || !matches(each, member) {
				return false
			}
		}
		return true
	case []any:
		array, is := value.([]any)
		if !is || len(array) != len(p) {
			return false
		}
		for i := range p {
			if !matches(p[i], array[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(pattern, value)
}

func (x *exchange) on(s step) (*client.Lines, string, error) {
	name := s["on"].(string)
	if lines := x.connections[name]; lines != nil {
		return lines, name, nil
	}
	lines, err := client.Dial(x.socket)
	x.connections[name] = lines
	return lines, name, err
}

// send sends a signal; a process that is to stop has stopped when it returns.
func send(signal syscall.Signal, pid int) error {
	if err := syscall.Kill(pid, signal); err != nil || signal != syscall.SIGSTOP {
		return err
	}
	for !stands(pid) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stands says whether each thread has stopped: one that runs gets the signal when it next enters the kernel.
func stands(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		rest := string(stat[strings.LastIndex(string(stat), ")")+2:])
		if !strings.ContainsRune("tTZX", rune(rest[0])) {
			return false
		}
	}
	return true
}

func (x *exchange) do(s step) error {
	if path, is := s["lock"]; is {
		return waitForLock(x.fill(path).(string), s["free"].(bool))
	}
	if path, is := s["remove"]; is {
		return os.Remove(x.fill(path).(string))
	}
	if name, is := s["close_descriptor"]; is {
		return x.descriptors[name.(string)].Close()
	}
	if name, is := s["signal"]; is {
		return send(signals[name.(string)], int(x.fill(s["pid"]).(float64)))
	}
	if greater, is := s["greater"]; is {
		a, b := x.fill(greater).(float64), x.fill(s["than"]).(float64)
		if a <= b {
			return fmt.Errorf("%v is not greater than %v", a, b)
		}
		return nil
	}
	lines, name, err := x.on(s)
	if err != nil {
		return err
	}
	switch {
	case s["send"] != nil:
		text, err := json.Marshal(x.fill(s["send"]))
		if err != nil {
			return err
		}
		return lines.Send(append(text, '\n'))
	case s["raw"] != nil:
		text := variable.ReplaceAllStringFunc(s["raw"].(string), func(found string) string {
			return fmt.Sprint(x.variables[found[1:]])
		})
		return lines.Send([]byte(text))
	case s["receive"] != nil:
		return x.receive(lines, name, s)
	case s["unread"] != nil:
		if n := len(x.unread[name]); float64(n) != s["unread"].(float64) {
			return fmt.Errorf("%d unread: %v", n, x.unread[name])
		}
		return nil
	case s["shutdown"] != nil:
		return lines.CloseWrite()
	case s["close"] != nil:
		return lines.Close()
	case s["closed"] != nil:
		line, err := lines.Next(timeout)
		if err == nil {
			return fmt.Errorf("not closed, but %s", line.Text)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("not closed")
		}
		return nil
	}
	return fmt.Errorf("unknown step %v", s)
}

func (x *exchange) receive(lines *client.Lines, name string, s step) error {
	pattern := x.fill(s["receive"])
	for at := 0; ; at++ {
		if at == len(x.unread[name]) {
			line, err := lines.Next(timeout)
			if err != nil {
				return fmt.Errorf("no %v came: %w; unread: %v", pattern, err, x.unread[name])
			}
			var message any
			if err := json.Unmarshal(line.Text, &message); err != nil {
				return err
			}
			x.unread[name] = append(x.unread[name], received{message, line.Files})
		}
		got := x.unread[name][at]
		if !matches(pattern, got.message) {
			continue
		}
		x.unread[name] = append(x.unread[name][:at:at], x.unread[name][at+1:]...)
		return x.keep(got, s)
	}
}

func (x *exchange) keep(got received, s step) error {
	save, _ := s["save"].(map[string]any)
	for name, path := range save {
		value := got.message
		for _, member := range strings.Split(path.(string), ".") {
			value = value.(map[string]any)[member]
		}
		x.variables[name] = value
	}
	name, wanted := s["descriptor"].(string)
	if (len(got.files) == 1) != wanted || len(got.files) > 1 {
		return fmt.Errorf("%d descriptors came with %v", len(got.files), got.message)
	}
	if wanted {
		x.descriptors[name] = got.files[0]
	}
	return nil
}

func waitForLock(path string, free bool) error {
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		is, err := isFree(path)
		if err != nil || is == free {
			return err
		}
		if !free || time.Now().After(end) {
			return fmt.Errorf("the lock %s is free: %v", path, is)
		}
	}
}

func isFree(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func replay(path string, variables map[string]any) error {
	var file struct{ Steps []step }
	if err := readJSON(path, &file); err != nil {
		return err
	}
	x := &exchange{
		socket:      variables["socket"].(string),
		variables:   variables,
		connections: map[string]*client.Lines{},
		unread:      map[string][]received{},
		descriptors: map[string]*os.File{},
	}
	defer func() {
		for _, lines := range x.connections {
			lines.Close()
		}
	}()
	for i, s := range file.Steps {
		if err := x.do(s); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

func main() {
	var variables map[string]map[string]any
	if err := readJSON(os.Args[1], &variables); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := 0
	for _, path := range os.Args[2:] {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if err := replay(path, variables[name]); err != nil {
			fmt.Fprintf(os.Stderr, "%s, %v\n", name, err)
			status = 1
			continue
		}
		fmt.Println("ok", name)
	}
	os.Exit(status)
}
