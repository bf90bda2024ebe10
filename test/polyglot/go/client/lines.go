// Package client is a client of the lease agent, in the standard library alone. See docs/protocol.md.
package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	receiveBytes = 64 * 1024
	// Room for the descriptors of one message.
	maxDescriptors = 16
)

// A Line is a message of the agent, with the descriptors that came with it.
type Line struct {
	Text  []byte
	Files []*os.File
}

// Lines is a connection as lines.
type Lines struct {
	conn         *net.UnixConn
	partial      []byte
	partialFiles []*os.File
	ready        []Line
}

// Dial connects to the agent's socket.
func Dial(path string) (*Lines, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &Lines{conn: conn}, nil
}

// Send sends bytes as they are.
func (l *Lines) Send(data []byte) error {
	_, err := l.conn.Write(data)
	return err
}

// Next gives the next line: io.EOF at the end, os.ErrDeadlineExceeded when none comes in time (zero: no
// limit).
func (l *Lines) Next(within time.Duration) (Line, error) {
	deadline := time.Time{}
	if within > 0 {
		deadline = time.Now().Add(within)
	}
	if err := l.conn.SetReadDeadline(deadline); err != nil {
		return Line{}, err
	}
	for len(l.ready) == 0 {
		if err := l.receive(); err != nil {
			return Line{}, err
		}
	}
	line := l.ready[0]
	l.ready = l.ready[1:]
	return line, nil
}

func (l *Lines) receive() error {
	data := make([]byte, receiveBytes)
	ancillary := make([]byte, syscall.CmsgSpace(4*maxDescriptors))
	n, ancillaryN, flags, _, err := l.conn.ReadMsgUnix(data, ancillary)
	if err != nil {
		return err
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		return errors.New("descriptors were lost: too many are open")
	}
	if n == 0 {
		return io.EOF
	}
	files, err := descriptors(ancillary[:ancillaryN])
	if err != nil {
		return err
	}
	l.split(data[:n], files)
	return nil
}

// A receive never goes on behind a message with a descriptor: it is that of the last line that began in
// what was received.
func (l *Lines) split(data []byte, files []*os.File) {
	parts := bytes.Split(data, []byte{'\n'})
	last := len(parts) - 1
	if len(parts[last]) == 0 && last > 0 {
		last--
	}
	for i, part := range parts {
		text, held := part, []*os.File(nil)
		if i == 0 {
			text, held = append(l.partial, part...), l.partialFiles
			l.partial, l.partialFiles = nil, nil
		}
		if i == last {
			held = append(held, files...)
		}
		if i == len(parts)-1 {
			l.partial, l.partialFiles = text, held
		} else if len(bytes.TrimSpace(text)) > 0 {
			l.ready = append(l.ready, Line{text, held})
		}
	}
}

func descriptors(ancillary []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "lock"))
		}
	}
	return files, nil
}

// CloseWrite shuts the sending side down.
func (l *Lines) CloseWrite() error { return l.conn.CloseWrite() }

// Close closes the connection: what was granted on it is over.
func (l *Lines) Close() error { return l.conn.Close() }
