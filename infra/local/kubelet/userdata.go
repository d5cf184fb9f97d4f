package kubelet

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// errNoBootstrap says that user data holds nothing that would start a kubelet.
var errNoBootstrap = errors.New("user data holds no bootstrap that is known")

// maxUserData bounds what unpacking may yield: EC2 takes 16 KiB packed.
const maxUserData = 1 << 20

// bootstrap is what a machine learns from its user data.
type bootstrap struct {
	family         Family
	cluster        string
	endpoint       string
	ca             []byte // PEM
	labels         map[string]string
	taints         []corev1.Taint
	maxPods        int64 // 0: what the network interfaces allow
	podsPerCore    int64
	kubeReserved   map[string]string // overrides of what the image reserves
	onlyReserved   bool              // kubeReserved replaces all that the image reserves
	systemReserved map[string]string
	evictionHard   map[string]string // overrides of the defaults
	onlyEviction   bool              // evictionHard replaces all defaults
	raid0          bool              // instance-store disks hold the pods
	instanceIDName bool              // the Node is named after the instance id
}

// parseUserData reads user data the way an image of family does. An empty family takes the one that
// the content suggests.
func parseUserData(family Family, data []byte) (bootstrap, error) {
	data, err := unpack(data)
	if err != nil {
		return bootstrap{}, err
	}
	switch family {
	case AL2023:
		return parseNodeadm(data)
	case AL2:
		return parseBootstrapScript(data)
	case Bottlerocket:
		return parseBottlerocket(data)
	case Custom:
	}
	if b, err := parseNodeadm(data); !errors.Is(err, errNoBootstrap) {
		return b, err
	}
	if b, err := parseBootstrapScript(data); !errors.Is(err, errNoBootstrap) {
		return b, err
	}
	if bytes.Contains(data, []byte("[settings.kubernetes")) {
		return parseBottlerocket(data)
	}
	return bootstrap{}, errNoBootstrap
}

// unpack undoes the base64 and gzip that cloud-init and nodeadm both accept.
func unpack(data []byte) ([]byte, error) {
	if plain, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data))); err == nil && len(plain) > 0 {
		data = plain
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpack user data: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxUserData))
	if err != nil {
		return nil, fmt.Errorf("unpack user data: %w", err)
	}
	return plain, nil
}

// part is one document of user data.
type part struct {
	mediaType string
	body      []byte
}

// parts splits multi-part user data. Anything else is one part without a type.
func parts(data []byte) ([]part, error) {
	msg, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return []part{{body: data}}, nil
	}
	mediaType, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(mediaType, "multipart/") {
		return []part{{body: data}}, nil
	}
	var all []part
	for r := multipart.NewReader(msg.Body, params["boundary"]); ; {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read user data part %d: %w", len(all)+1, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("read user data part %d: %w", len(all)+1, err)
		}
		if body, err = unpack(body); err != nil {
			return nil, err
		}
		mediaType, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			mediaType = "" // cloud-init passes over a part whose type it cannot read
		}
		all = append(all, part{mediaType, body})
	}
}
