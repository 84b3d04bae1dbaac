// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"navix.sh/atoll/pkg/problem"
)

const (
	// pongEvery is the period of unsolicited pongs, to which a peer does not respond.
	pongEvery = 15 * time.Second
	// controlTimeout bounds the wait of a control message behind other messages.
	controlTimeout = time.Second
	// partingPatience is how long a caller may take to disconnect after the last message.
	partingPatience = 5 * time.Second
	// hurry is how long a blocked sender may stay blocked when the conversation is cut.
	hurry = 2 * time.Second
	// maxReason bounds the text in a close message.
	maxReason = 123
)

// upgrade upgrades a request to a WebSocket. permit has already refused pages of other origins.
func upgrade(w http.ResponseWriter, r *http.Request, protocols ...string) (*socket, error) {
	upgrader := websocket.Upgrader{
		Subprotocols: protocols, CheckOrigin: func(*http.Request) bool { return true },
		ReadBufferSize: MaxMessage, WriteBufferSize: MaxMessage,
	}
	header := http.Header{} // an upgrade sends none of w's own
	for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
		if value := w.Header().Get(name); value != "" {
			header.Set(name, value)
		}
	}
	conn, err := upgrader.Upgrade(w, r, header)
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, done: make(chan struct{}), buffer: make([]byte, MaxMessage)}
	go s.beat()
	return s, nil
}

// wants fails for a request that does not upgrade to a WebSocket with one of the protocols.
func wants(r *http.Request, protocols ...string) error {
	if !websocket.IsWebSocketUpgrade(r) {
		return problem.New(problem.Invalid, "%s is a WebSocket, with the subprotocol %s", r.URL.Path, protocols[0])
	}
	if slices.ContainsFunc(websocket.Subprotocols(r), func(offered string) bool { return slices.Contains(protocols, offered) }) {
		return nil
	}
	return problem.InvalidField("Sec-WebSocket-Protocol", r.Header.Get("Sec-WebSocket-Protocol"), protocols[0])
}

// socket is a WebSocket that reads messages in pieces, so that they may have any size.
type socket struct {
	conn   *websocket.Conn
	piece  io.Reader // the rest of the current message
	buffer []byte
	done   chan struct{}
	once   sync.Once
}

// beat keeps middleboxes from dropping the connection.
func (s *socket) beat() {
	ticker := time.NewTicker(pongEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C:
			_ = s.conn.WriteControl(websocket.PongMessage, nil, time.Now().Add(controlTimeout))
		}
	}
}

// next returns the next piece of a message, read into the buffer at the given offset, and whether the piece starts a message.
func (s *socket) next(offset int) (piece []byte, begins bool, err error) {
	for {
		if s.piece == nil {
			kind, reader, err := s.conn.NextReader()
			if err != nil {
				return nil, false, err
			}
			if kind != websocket.BinaryMessage {
				return nil, false, errors.New("a message that is not binary")
			}
			s.piece, begins = reader, true
		}
		n, err := s.piece.Read(s.buffer[offset:])
		if err != nil {
			s.piece = nil
			if !errors.Is(err, io.EOF) {
				return nil, false, err
			}
		}
		if n > 0 || begins {
			return s.buffer[offset : offset+n], begins, nil
		}
	}
}

func (s *socket) Send(message []byte) error {
	return s.conn.WriteMessage(websocket.BinaryMessage, message)
}

func (s *socket) Hurry() { _ = s.conn.NetConn().SetWriteDeadline(time.Now().Add(hurry)) }

// part sends a close message, and waits for a moment for the peer's.
func (s *socket) part(reason error) error {
	code, text := websocket.CloseNormalClosure, ""
	if reason != nil {
		code, text = closeCode(reason)
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(partingPatience))
	return s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(controlTimeout))
}

func closeCode(reason error) (code int, text string) {
	p := problem.FromError(reason)
	code, text = websocket.CloseInternalServerErr, p.Message
	switch p.Reason {
	case problem.Unavailable:
		code = websocket.CloseTryAgainLater
	case problem.NotFound:
		code = websocket.CloseGoingAway
	}
	for len(text) > maxReason || !utf8.ValidString(text) {
		text = text[:min(len(text)-1, maxReason)]
	}
	return code, text
}

func (s *socket) Close(reason error) {
	s.once.Do(func() {
		close(s.done)
		if reason != nil {
			_ = s.part(reason)
		}
		_ = s.conn.Close()
	})
}
