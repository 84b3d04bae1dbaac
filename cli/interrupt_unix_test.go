// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

const interruptedHere = "ATOLL_TEST_INTERRUPTED"

// TestASecondInterruptEndsTheProgram runs itself as a program that does not end with its context.
func TestASecondInterruptEndsTheProgram(t *testing.T) {
	if os.Getenv(interruptedHere) != "" {
		ctx, stop := interruptible()
		defer stop()
		fmt.Println("began")
		<-ctx.Done()
		fmt.Println("interrupted")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the other side ends
		return
	}
	program := exec.Command(os.Args[0], "-test.run=^TestASecondInterruptEndsTheProgram$")
	program.Env = append(os.Environ(), interruptedHere+"=1")
	in, err := program.StdinPipe()
	must.Succeed(t, err)
	out, err := program.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, program.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = program.Process.Kill()
	})
	lines := bufio.NewScanner(out)
	hears := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	hears("began")
	must.Succeed(t, program.Process.Signal(os.Interrupt))
	hears("interrupted")
	ended := make(chan struct{})
	go func() {
		_ = program.Wait()
		close(ended)
	}()
	wait.For(t, 30*time.Second, "the program to end", func(context.Context) error {
		_ = program.Process.Signal(os.Interrupt) // the first of these may come before the context's end is noticed
		select {
		case <-ended:
			return nil
		default:
			return wait.If(false, "it runs")
		}
	})
}
