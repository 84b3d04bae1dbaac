// SPDX-License-Identifier: Apache-2.0

// Package logging adds the same two log flags to every program, and creates the logger.
package logging

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	uber "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Flags configure a logger.
type Flags struct {
	level, format string
}

// Bind adds --log-level and --log-format.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.format, "log-format", "json", "json or text")
}

// Logger returns a logger that writes to w.
func (f *Flags) Logger(w io.Writer) (logr.Logger, error) {
	level, err := zapcore.ParseLevel(f.level)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q is not valid, want debug, info, warn or error", f.level)
	}
	options := []zap.Opts{
		zap.WriteTo(w), zap.Level(level), zap.RawZapOpts(uber.WrapCore(func(core zapcore.Core) zapcore.Core { return &tidy{Core: core} })),
	}
	times := func(c *zapcore.EncoderConfig) { c.EncodeTime = utc }
	switch f.format {
	case "json":
		options = append(options, zap.JSONEncoder(times))
	case "text":
		options = append(options, zap.ConsoleEncoder(times))
	default:
		return logr.Logger{}, fmt.Errorf("--log-format %q is not valid, want json or text", f.format)
	}
	return zap.New(options...), nil
}
