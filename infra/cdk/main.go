package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"treadle/infra/cdk/treadle"
)

func main() {
	defer jsii.Close()
	context, err := contextOf("cdk.json")
	if err != nil {
		fmt.Fprintln(os.Stderr, "cdk:", err)
		os.Exit(1)
	}
	app := awscdk.NewApp(&awscdk.AppProps{Context: &context})
	props, err := propsOf(app)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cdk:", err)
		os.Exit(1)
	}
	stack := awscdk.NewStack(app, jsii.String("Treadle"), &awscdk.StackProps{Description: jsii.String("Treadle: node autoscaling for Amazon EKS")})
	if _, err := treadle.New(stack, "Treadle", props); err != nil {
		fmt.Fprintln(os.Stderr, "cdk:", err)
		os.Exit(1)
	}
	app.Synth(nil)
}

// contextOf reads the context of cdk.json, which the CDK's command line passes on; without it the app is on its own.
func contextOf(file string) (map[string]any, error) {
	if os.Getenv("CDK_CONTEXT_JSON") != "" {
		return map[string]any{}, nil
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		Context map[string]any `json:"context"`
	}
	if err := json.Unmarshal(body, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return config.Context, nil
}

// propsOf reads the context "treadle" of cdk.json, or of `cdk -c treadle='{…}'`. A field that is not known is an error.
func propsOf(app awscdk.App) (treadle.Props, error) {
	var props treadle.Props
	raw := app.Node().TryGetContext(jsii.String("treadle"))
	text, isText := raw.(string)
	body := []byte(text)
	if !isText {
		var err error
		if body, err = json.Marshal(raw); err != nil {
			return props, fmt.Errorf("context treadle: %w", err)
		}
	}
	if err := treadle.Decode(body, &props); err != nil {
		return props, fmt.Errorf("context treadle: %w", err)
	}
	if props.Build == "" {
		props.Build = filepath.Join("build", "arm64")
	}
	return props, nil
}
