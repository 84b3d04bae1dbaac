// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

func portForwardCommand(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "port-forward ID [LOCAL:]REMOTE...",
		Short: "Make ports of a sandbox ports of this machine",
		Long: `Make TCP ports of a sandbox ports of this machine, until Ctrl-C, or a connection after the sandbox's end. LOCAL is the port
here, by default the same number; with ":REMOTE" any that is free. Each connection here is one to the sandbox, by way of the
hub and the sandbox's cluster; one without a reader delays no other.

For HTTP alone nothing needs to be forwarded: the server returns at /v1/sandboxes/ID/ports/PORT/ what the sandbox does.`,
		Example: `  atollctl port-forward 01j9zq3p3k5m8x7c2v4b6n8d0f-east 8888
  atollctl port-forward 01j9zq3p3k5m8x7c2v4b6n8d0f-east 15432:5432 :6379`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: firstOnly(a.completeSandboxes),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := parsePorts(args[1:])
			if err != nil {
				return err
			}
			p, err := a.place(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.call(cmd, func(ctx context.Context, c clients) error {
				sandbox, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: args[0]})
				if err != nil {
					return err
				}
				return usable(sandbox)
			}); err != nil {
				return err
			}
			f := &forwarding{place: p, id: args[0], errOut: cmd.ErrOrStderr(),
				gone: func(ctx context.Context) error { return a.gone(ctx, args[0]) }}
			return f.run(cmd.Context(), cmd.OutOrStdout(), address, ports)
		},
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "address of this machine to listen on")
	return cmd
}

// forwarding forwards some ports of a sandbox.
type forwarding struct {
	place  *place
	id     string
	errOut io.Writer
	gone   func(context.Context) error // returns the error of the sandbox if that is gone
	conns  sync.WaitGroup
}

// portPair is a port of this machine, 0 for any, and one of the sandbox.
type portPair struct{ local, remote uint16 }

// parsePorts parses a list of [LOCAL:]REMOTE.
func parsePorts(texts []string) (pairs []portPair, err error) {
	for _, text := range texts {
		before, after, both := strings.Cut(text, ":")
		if !both {
			before, after = text, text
		} else if before == "" {
			before = "0"
		}
		local, localErr := strconv.ParseUint(before, 10, 16)
		remote, err := strconv.ParseUint(after, 10, 16)
		if localErr != nil || err != nil || remote == 0 {
			return nil, usagef("port %q is not valid, want [LOCAL:]REMOTE with numbers from 1 to 65535", text)
		}
		pairs = append(pairs, portPair{uint16(local), uint16(remote)})
	}
	return pairs, nil
}

// run listens on all ports or on none. It forwards until its context ends, or until a connection finds that the sandbox is gone.
func (f *forwarding) run(until context.Context, out io.Writer, address string, ports []portPair) error {
	ctx, end := context.WithCancelCause(until)
	defer f.conns.Wait()
	defer end(nil)
	var accepting sync.WaitGroup
	defer accepting.Wait()
	for _, port := range ports {
		var config net.ListenConfig
		lis, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(port.local))))
		if err != nil {
			return fmt.Errorf("listening for port %d of the sandbox: %w", port.remote, err)
		}
		defer context.AfterFunc(ctx, func() { _ = lis.Close() })
		defer func() { _ = lis.Close() }()
		fmt.Fprintf(out, "%s is port %d of %s\n", lis.Addr(), port.remote, f.id)
		accepting.Go(func() { f.accept(ctx, end, lis, port.remote) })
	}
	<-ctx.Done()
	if until.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// accept forwards the connections of one port. If the sandbox is gone, it ends all forwarding, because a sandbox does not come back.
func (f *forwarding) accept(ctx context.Context, end context.CancelCauseFunc, lis net.Listener, remote uint16) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		f.conns.Go(func() {
			defer func() { _ = conn.Close() }()
			err := f.forward(ctx, conn, remote)
			var gone error
			if err != nil && problem.FromError(err).Reason == problem.NotFound {
				gone = f.gone(ctx) // the response may be a proxy's, or about this connection alone
			}
			switch {
			case err == nil || ctx.Err() != nil:
			case gone != nil:
				end(gone)
			default:
				fmt.Fprintf(f.errOut, "port %d: ", remote)
				reportError(f.errOut, err)
			}
		})
	}
}

// forward carries one connection. An empty message is a FIN.
func (f *forwarding) forward(ctx context.Context, conn net.Conn, remote uint16) error {
	socket, err := f.place.connect(ctx, f.id, "ports/"+strconv.Itoa(int(remote)), nil, reach.TCPProtocol)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	defer context.AfterFunc(ctx, func() {
		_ = socket.Close()
		_ = conn.Close()
	})()
	go func() {
		buffer := make([]byte, reach.MaxMessage-1)
		for {
			n, err := conn.Read(buffer)
			if n > 0 && socket.WriteMessage(websocket.BinaryMessage, buffer[:n]) != nil {
				return
			}
			if errors.Is(err, io.EOF) {
				_ = socket.WriteMessage(websocket.BinaryMessage, nil)
				return
			}
			if err != nil {
				_ = socket.Close()
				return
			}
		}
	}()
	for {
		_, message, err := socket.ReadMessage()
		switch {
		case websocket.IsCloseError(err, websocket.CloseNormalClosure), errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case len(message) == 0:
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			continue
		}
		if _, err := conn.Write(message); err != nil {
			return nil // the client has disconnected
		}
	}
}
