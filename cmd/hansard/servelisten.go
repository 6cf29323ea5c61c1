package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

func (o *serveOptions) listenAll() ([]net.Listener, error) {
	var out []net.Listener
	if o.listen != "" {
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return nil, &hinted{fmt.Errorf("can't listen on %s: %w", o.listen, err), "another program may be using the port: --listen 127.0.0.1:0 takes a free one"}
		}
		out = append(out, l)
	}
	if o.socket != "" {
		l, err := listenSocket(o.socket)
		if err != nil {
			for _, open := range out {
				open.Close()
			}
			return nil, fmt.Errorf("can't listen on the socket: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// listenSocket listens on a Unix socket that only its owner may use. A socket
// left behind by a killed server is not in use: it is replaced.
func listenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, errors.New("another server listens there")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Between listening and chmod others could connect: so the socket is made
	// in a private directory, gets its permissions there, and its name last.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".hansard-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	private := filepath.Join(dir, "s")
	l, err := net.Listen("unix", private)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(private, 0o600)
	if err == nil {
		err = os.Rename(private, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &socketListener{l, path}, nil
}

// socketListener removes its socket when it is closed.
type socketListener struct {
	net.Listener
	path string
}

func (l *socketListener) Close() error {
	err := l.Listener.Close()
	_ = os.Remove(l.path) // if another server has just replaced it, that one's is removed
	return err
}

// publicHost is how clients address the listener.
func (o *serveOptions) publicHost(address net.Addr) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if len(o.hosts) > 0 {
		host = o.hosts[0]
	}
	return net.JoinHostPort(host, port)
}
