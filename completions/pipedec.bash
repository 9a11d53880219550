# Made by .ci/completions. No Tab starts Python.
_pipedec() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words= prefix=
    [ "$command" = shard ] && [ "$COMP_CWORD" -gt 2 ] && command="shard ${COMP_WORDS[2]}"
    [ "$COMP_CWORD" -eq 1 ] && command=
    COMPREPLY=()
    case "$command $previous" in
        "segment --level") words="clause field phrase sentence" ;;
        "segment --recipe") words="paper msqa kp20k kptimes wikihowqa cnn_dailymail pubmed fields" ;;
        "train --decoder") words="pipelined sequential" ;;
        "train --delay") words="1 2 3 any" ;;
        "train --device") words="cpu cuda" ;;
        "train --recipe") words="paper msqa kp20k kptimes wikihowqa cnn_dailymail pubmed fields" ;;
        "generate --delay") words="1 2 3 wait" ;;
        "generate --draft") words="jacobi pipelined source" ;;
        "generate --split") words="dev test train" ;;
        "generate --batch-size") words="auto" ;;
        "generate --dtype") words="bfloat16 float16 float32 int4 int8" ;;
        "generate --device") words="cpu cuda" ;;
        "serve --dtype") words="bfloat16 float16 float32 int4 int8" ;;
        "serve --device") words="cpu cuda" ;;
        "score --task") words="fields keyphrases multispan summarization" ;;
        "score --protocol") words="chan2019 fields meng2017 multispanqa rouge" ;;
        "score --recipe") words="paper msqa kp20k kptimes wikihowqa cnn_dailymail pubmed fields" ;;
        "report --compare") words="sequential exact exact-pipelined exact-source exact-jacobi transformers transformers:bfloat16 ctranslate2 ctranslate2:int8 ctranslate2:bfloat16 llama.cpp" ;;
        "report --delays") words="1 2 3 wait" ;;
        "report --split") words="dev test train" ;;
        "report --dtype") words="bfloat16 float16 float32 int4 int8" ;;
        "report --device") words="cpu cuda" ;;
        "report --recipe") words="paper msqa kp20k kptimes wikihowqa cnn_dailymail pubmed fields" ;;
        "bench --shape") words="cnn_dailymail fields kp20k kptimes msqa pubmed wikihowqa" ;;
        "bench --compare") words="sequential transformers transformers:bfloat16 ctranslate2 ctranslate2:int8 ctranslate2:bfloat16 llama.cpp" ;;
        "bench --delays") words="1 2 3" ;;
        "bench --dtypes") words="bfloat16 float16 float32 int4 int8" ;;
        "bench --device") words="cpu cuda" ;;
        "import --split") words="dev test train" ;;
        *" --allow-host"|*" --api-key-file"|*" --ask"|*" --baseline"|*" --batch-size"|*" --batch-sizes"|*" --cache-mb"|*" --calibrate"|*" --compare"|*" --config"|*" --decoder"|*" --delay"|*" --delays"|*" --dev"|*" --device"|*" --draft"|*" --dtype"|*" --dtypes"|*" --epochs"|*" --exact"|*" --fields"|*" --gold"|*" --grace"|*" --host"|*" --learning-rate"|*" --level"|*" --limit"|*" --lora"|*" --max-source-tokens"|*" --max-steps"|*" --max-tokens"|*" --model"|*" --name"|*" --out"|*" --part"|*" --port"|*" --prompt-template"|*" --protocol"|*" --queue"|*" --recipe"|*" --schema"|*" --seed"|*" --separator"|*" --set"|*" --shape"|*" --shots"|*" --source"|*" --source-field"|*" --sources"|*" --split"|*" --subsequences"|*" --target-field"|*" --targets"|*" --task"|*" --teacher"|*" --test"|*" --text"|*" --tokenizer"|*" --tokens"|*" --workspace"|*" -w") return ;;
        *) case "$command" in
            "") words="segment train generate serve score report bench import demo shard" ;;
            shard) words="merge" ;;
            "segment") [[ $current == -* ]] && words="--level --separator --source-field --target-field --sources-only --fields --schema --dev --test --tokenizer --limit --out --workspace --config --set --recipe --json --quiet --help-all --help" ;;
            "train") [[ $current == -* ]] && words="--teacher --model --decoder --delay --epochs --max-steps --batch-size --learning-rate --bf16 --lora --chat --no-chat --max-source-tokens --seed --device --resume --overwrite --out --workspace --config --set --recipe --json --quiet --help-all --help" ;;
            "generate") [[ $current == -* ]] && words="--model --delay --exact --max-tokens --draft --confidence --grounded --free --spans --schema --fields --shots --ask --calibrate --plain --split --limit --source-field --prompt-template --chat --no-chat --max-source-tokens --skip-invalid --batch-size --dtype --device --out --show-prompt --text --resume --live --part --ray --workspace --config --set --json --quiet --help-all --help" ;;
            "serve") [[ $current == -* ]] && words="--model --batch-size --dtype --device --host --port --name --api-key-file --allow-host --insecure --cache-mb --queue --grace --workspace --config --set --help-all --help" ;;
            "score") [[ $current == -* ]] && words="--task --protocol --gold --sources --out --workspace --config --set --recipe --json --quiet --help-all --help" ;;
            "report") [[ $current == -* ]] && words="--compare --delays --model --baseline --split --limit --max-tokens --batch-sizes --dtype --device --out --workspace --config --set --recipe --json --quiet --help-all --help" ;;
            "bench") [[ $current == -* ]] && words="--shape --subsequences --tokens --source --model --compare --delays --dtypes --batch-sizes --device --set --quiet --json --help-all --help" ;;
            "import") [[ $current == -* ]] && words="--split --out --limit --targets --separator --json --quiet --help-all --help" ;;
            "demo") [[ $current == -* ]] && words="--out --help-all --help" ;;
            "shard merge") [[ $current == -* ]] && words="--out --json --quiet --help-all --help" ;;
        esac ;;
    esac
    [[ $current == *,* && $current != -* ]] && prefix=${current%,*},
    COMPREPLY=( $(compgen -P "$prefix" -W "$words" -- "${current##*,}") )
}

complete -o default -F _pipedec pipedec
