package kubelet

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const bootstrapScript = "/etc/eks/bootstrap.sh"

// parseBootstrapScript finds the call of the EKS bootstrap script in a shell script, or in the shell
// parts of a multi-part document. The last call wins, as it is the last to write kubelet's settings.
func parseBootstrapScript(data []byte) (bootstrap, error) {
	documents, err := parts(data)
	if err != nil {
		return bootstrap{}, err
	}
	var call []string
	for _, p := range documents {
		if p.mediaType != "" && p.mediaType != "text/x-shellscript" {
			continue
		}
		found, err := findCall(string(p.body))
		if err != nil {
			return bootstrap{}, err
		}
		if found != nil {
			call = found
		}
	}
	if call == nil {
		return bootstrap{}, errNoBootstrap
	}
	return readCall(call)
}

// findCall returns the arguments of the last call of the bootstrap script, nil if there is none.
func findCall(script string) ([]string, error) {
	if !strings.Contains(script, bootstrapScript) {
		return nil, nil
	}
	var call []string
	script = strings.ReplaceAll(strings.ReplaceAll(script, "\r\n", "\n"), "\\\n", " ")
	for line := range strings.SplitSeq(script, "\n") {
		if !strings.Contains(line, bootstrapScript) || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		words, err := shellWords(line)
		if err != nil {
			return nil, fmt.Errorf("read bootstrap call: %w", err)
		}
		for i, w := range words {
			if w == bootstrapScript {
				call = untilOperator(words[i+1:])
			}
		}
	}
	return call, nil
}

func untilOperator(words []string) []string {
	for i, w := range words {
		switch w {
		case ";", "&&", "||", "|", "&", ">", ">>":
			return words[:i]
		}
	}
	return words
}

func readCall(args []string) (bootstrap, error) {
	b := bootstrap{family: AL2}
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "--") {
			b.cluster = args[i]
			continue
		}
		name, value, joined := strings.Cut(args[i], "=")
		if !joined && i+1 < len(args) {
			i++
			value = args[i]
		}
		if err := b.applyOption(name, value); err != nil {
			return bootstrap{}, fmt.Errorf("read bootstrap option %s: %w", name, err)
		}
	}
	if b.cluster == "" {
		return bootstrap{}, errors.New("read bootstrap call: no cluster name")
	}
	return b, nil
}

func (b *bootstrap) applyOption(name, value string) error {
	var err error
	switch name {
	case "--apiserver-endpoint":
		b.endpoint = value
	case "--b64-cluster-ca":
		b.ca, err = base64.StdEncoding.DecodeString(value)
	case "--local-disks":
		b.raid0 = value == "raid0"
	case "--kubelet-extra-args":
		var words []string
		if words, err = shellWords(value); err == nil {
			err = b.applyFlags(words)
		}
	}
	return err
}

// shellWords splits a line as a shell does: blanks part words, quotes and backslashes hold them
// together. Nothing is expanded.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			inWord, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("unterminated quote")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
