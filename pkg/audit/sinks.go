// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/utils/clock"
)

// writer writes lines to a stream, and does not close it.
type writer struct{ to io.Writer }

// Stdout returns a sink that writes to a stream.
func Stdout(to io.Writer) Sink { return writer{to} }

func (writer) Name() string { return "stdout" }
func (writer) Close() error { return nil }

func (w writer) Write(lines []Line) error {
	_, err := w.to.Write(join(lines))
	return err
}

func join(lines []Line) []byte {
	var out bytes.Buffer
	for _, line := range lines {
		out.Write(line.Text)
	}
	return out.Bytes()
}

// FileOptions bound the files of a File sink.
type FileOptions struct {
	Path      string
	Megabytes int           // of one file
	Files     int           // older files, which are compressed
	Age       time.Duration // of the current file
	Clock     clock.PassiveClock
}

// file rotates by size (lumberjack) and by age.
type file struct {
	opts  FileOptions
	to    *lumberjack.Logger
	begun time.Time // when this process wrote the first line to the current file; zero: not yet
	torn  bool      // the last line may be incomplete
}

// File returns a sink that writes to rotated files. It fails if the file cannot be written.
func File(o FileOptions) (Sink, error) {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("making the audit's folder: %w", err)
	}
	probe, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit's file: %w", err)
	}
	if err := probe.Close(); err != nil {
		return nil, fmt.Errorf("opening the audit's file: %w", err)
	}
	torn, err := endsTorn(o.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit's file: %w", err)
	}
	return &file{opts: o, torn: torn, to: &lumberjack.Logger{
		Filename: o.Path, MaxSize: o.Megabytes, MaxBackups: o.Files, Compress: true,
	}}, nil
}

// endsTorn reports whether a file ends with an incomplete line, for example after a crash.
func endsTorn(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

func (f *file) Name() string { return "file" }

func (f *file) Write(lines []Line) error {
	now := f.opts.Clock.Now()
	if f.begun.IsZero() {
		f.begun = now
	}
	if now.Sub(f.begun) >= f.opts.Age {
		if err := f.to.Rotate(); err != nil {
			return err
		}
		f.begun, f.torn = now, false
	}
	text := join(lines)
	if f.torn {
		text = append([]byte{'\n'}, text...)
	}
	if _, err := f.to.Write(text); err != nil {
		f.torn = true
		return err
	}
	f.torn = false
	return nil
}

func (f *file) Close() error { return f.to.Close() }
