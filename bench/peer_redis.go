package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"hansard/internal/bench"
)

// Redis, which appends to its log and syncs it before it answers: appendfsync always. A
// session is a list, and its length after the push is the seq.
var redisPeer = peer{
	Candidate: bench.Candidate{Name: "redis", Setup: func(context.Context, bench.Job) error { return nil }, Open: openRedis, Check: checkRedis},
	shared:    true, serve: serveRedis,
	read: func(j bench.Job) (reader, error) { return newRedis(j), nil },
}

func serveRedis(ctx context.Context, dir string) (*server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "redis")
	said, err := os.Create(filepath.Join(dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd := exec.CommandContext(ctx, program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always",
		"--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no")
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error {
		err := cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // how it ended does not matter any more
		return err
	}
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer c.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = c.Ping(ctx).Err(); err == nil {
			return &server{address: socket, pid: cmd.Process.Pid, stop: stop}, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("redis-server does not answer: %w", err), stop())
		}
	}
}

type redisTarget struct {
	*redis.Client
	keys []string
}

func newRedis(j bench.Job) *redisTarget {
	t := &redisTarget{Client: redis.NewClient(&redis.Options{Network: "unix", Addr: j.Address, PoolSize: j.Goroutines, MaxRetries: -1, ReadTimeout: time.Minute})}
	for i := range j.Sessions {
		t.keys = append(t.keys, string(bench.SessionID(i)))
	}
	return t
}

func openRedis(j bench.Job) (bench.Target, error) { return newRedis(j), nil }

func (t *redisTarget) Append(ctx context.Context, _, session int, tag uint64) (uint64, error) {
	n, err := t.RPush(ctx, t.keys[session], encode(tag)).Result()
	return uint64(n), err
}

func (t *redisTarget) each(ctx context.Context, session int, last int, do func(seq uint64, value []byte) error) error {
	n, err := t.LLen(ctx, t.keys[session]).Result()
	if err != nil {
		return err
	}
	from := int64(0)
	if last > 0 {
		from = max(0, n-int64(last))
	}
	const page = 1000
	for ; from < n; from += page {
		values, err := t.LRange(ctx, t.keys[session], from, min(n, from+page)-1).Result()
		if err != nil {
			return err
		}
		for i, v := range values {
			if err := do(uint64(from)+uint64(i)+1, []byte(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *redisTarget) events(ctx context.Context, last int, each func(uint64)) error {
	return t.each(ctx, 0, last, decoded(each))
}

func checkRedis(ctx context.Context, j bench.Job, acks [][]bench.Ack) error {
	t := newRedis(j)
	defer t.Close()
	return checkEach(acks, func(i int, do func(uint64, []byte) error) error { return t.each(ctx, i, 0, do) })
}
