package pgtest

import (
	"encoding/binary"
	"io"
)

// Loss is the end of a connection through a tap when the client executes a statement. The
// server does not receive the statement, unless the loss says so.
type Loss struct {
	SQL   string
	Heard bool            // the server executes it: the answer is lost
	Late  <-chan struct{} // the server receives it when this is closed; the client's end is gone before
	Then  func()          // called when the server is done with it

	// Error is the text of an error, without a code, that the client gets before the
	// connection ends, as a proxy in between sends it.
	Error string

	// Silent leaves the connection open at both ends, and nothing passes any more.
	Silent bool
	// Begun, with Silent, passes the statement to the server, but not the message that
	// follows it and ends the request.
	Begun bool
}

// Lose makes connections end, one after the other.
func (t *Tap) Lose(losses ...Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.losses = append(t.losses, losses...)
}

// Left is how many of the losses have not happened yet.
func (t *Tap) Left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.losses)
}

// lose ends a connection with the message that the loss was waiting for.
func (c *tapped) lose(client io.ReadWriteCloser, server io.WriteCloser, message []byte) error {
	if c.loss.Silent {
		return c.fallSilent(client, server, message)
	}
	if c.loss.Heard || c.loss.Late != nil {
		rest, err := until(client, 'S')
		if err != nil {
			return err
		}
		if c.loss.Late != nil {
			client.Close()
			<-c.loss.Late
		}
		if _, err := server.Write(append(message, rest...)); err != nil {
			return nil // it was killed
		}
		<-c.answered
	} else {
		server.Close()
	}
	if c.loss.Error != "" {
		if _, err := client.Write(errorResponse("ERROR", "", c.loss.Error)); err != nil {
			return nil // it has given up
		}
	}
	if c.loss.Then != nil {
		c.loss.Then()
	}
	return nil
}

// errorResponse is how a server says that something went wrong.
func errorResponse(severity, code, text string) []byte {
	fields := "S" + severity + "\x00V" + severity + "\x00"
	if code != "" {
		fields += "C" + code + "\x00"
	}
	fields += "M" + text + "\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(fields)+4)), fields...)
}

// fallSilent passes nothing on until the test ends.
func (c *tapped) fallSilent(client io.Reader, server io.Writer, message []byte) error {
	if c.loss.Begun {
		rest, err := until(client, 'E')
		if err != nil {
			return err
		}
		if _, err := server.Write(append(message, rest...)); err != nil {
			return nil // it was killed
		}
		// The server does not answer before it gets the end of the request.
	}
	if c.loss.Then != nil {
		c.loss.Then()
	}
	<-c.ended
	return nil
}

// until reads what the client sends up to a message with this letter: after S it waits
// for an answer.
func until(client io.Reader, letter byte) (all []byte, err error) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(client, head); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return nil, err
		}
		if all = append(append(all, head...), body...); head[0] == letter {
			return all, nil
		}
	}
}
